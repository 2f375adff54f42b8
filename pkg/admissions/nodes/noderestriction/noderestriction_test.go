package noderestriction_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/nodes/noderestriction"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, noderestriction.Plugin) }
