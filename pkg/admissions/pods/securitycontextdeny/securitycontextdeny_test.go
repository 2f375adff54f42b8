package securitycontextdeny_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/securitycontextdeny"
)

func Test(t *testing.T) { admittest.Run(t, securitycontextdeny.Plugin) }
