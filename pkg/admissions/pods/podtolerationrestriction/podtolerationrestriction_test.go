package podtolerationrestriction_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/podtolerationrestriction"
)

func Test(t *testing.T) { admittest.Run(t, podtolerationrestriction.Plugin) }
