package podgroupprotection_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/podgroupprotection"
)

func Test(t *testing.T) { admittest.Run(t, podgroupprotection.Plugin) }
