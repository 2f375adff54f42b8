package securitycontextdeny_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/securitycontextdeny"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, securitycontextdeny.Plugin) }
