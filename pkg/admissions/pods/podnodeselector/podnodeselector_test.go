package podnodeselector_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/podnodeselector"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, podnodeselector.Plugin) }
