package nodedeclaredfeaturevalidator_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/nodedeclaredfeaturevalidator"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, nodedeclaredfeaturevalidator.Plugin) }
