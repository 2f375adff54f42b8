package podtopologylabels_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/podtopologylabels"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, podtopologylabels.Plugin) }
