package podgroupprotection_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/podgroupprotection"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, podgroupprotection.Plugin) }
