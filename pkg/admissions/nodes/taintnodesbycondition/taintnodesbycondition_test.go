package taintnodesbycondition_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/nodes/taintnodesbycondition"
)

func Test(t *testing.T) { admittest.Run(t, taintnodesbycondition.Plugin) }
