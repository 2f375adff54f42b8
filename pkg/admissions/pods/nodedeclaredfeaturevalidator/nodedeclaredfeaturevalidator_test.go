package nodedeclaredfeaturevalidator_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/nodedeclaredfeaturevalidator"
)

func Test(t *testing.T) { admittest.Run(t, nodedeclaredfeaturevalidator.Plugin) }
