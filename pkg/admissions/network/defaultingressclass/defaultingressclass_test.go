package defaultingressclass_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/network/defaultingressclass"
)

func Test(t *testing.T) { admittest.Run(t, defaultingressclass.Plugin) }
