package defaultingressclass_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/network/defaultingressclass"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, defaultingressclass.Plugin) }
