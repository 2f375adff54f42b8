package teamlabel_test

import (
	"testing"

	"example.com/custom/teamlabel"

	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, teamlabel.Plugin) }
