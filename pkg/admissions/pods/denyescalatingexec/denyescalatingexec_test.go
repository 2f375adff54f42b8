package denyescalatingexec_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/denyescalatingexec"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, denyescalatingexec.Plugin) }
