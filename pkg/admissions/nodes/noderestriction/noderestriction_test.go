package noderestriction_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/nodes/noderestriction"
)

func Test(t *testing.T) { admittest.Run(t, noderestriction.Plugin) }
