package extendedresourcetoleration_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/extendedresourcetoleration"
)

func Test(t *testing.T) { admittest.Run(t, extendedresourcetoleration.Plugin) }
