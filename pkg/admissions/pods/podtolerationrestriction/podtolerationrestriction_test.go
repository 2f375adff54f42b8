package podtolerationrestriction_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/podtolerationrestriction"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, podtolerationrestriction.Plugin) }
