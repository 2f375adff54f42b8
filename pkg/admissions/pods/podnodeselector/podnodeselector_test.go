package podnodeselector_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/podnodeselector"
)

func Test(t *testing.T) { admittest.Run(t, podnodeselector.Plugin) }
