package denyescalatingexec_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/denyescalatingexec"
)

func Test(t *testing.T) { admittest.Run(t, denyescalatingexec.Plugin) }
