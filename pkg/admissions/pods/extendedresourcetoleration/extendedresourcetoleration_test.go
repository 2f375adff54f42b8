package extendedresourcetoleration_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/extendedresourcetoleration"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, extendedresourcetoleration.Plugin) }
