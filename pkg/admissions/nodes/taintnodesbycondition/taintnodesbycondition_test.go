package taintnodesbycondition_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/nodes/taintnodesbycondition"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, taintnodesbycondition.Plugin) }
