package podtopologylabels_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/podtopologylabels"
)

func Test(t *testing.T) { admittest.Run(t, podtopologylabels.Plugin) }
