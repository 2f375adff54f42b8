package alwaysadmit_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/always/alwaysadmit"
)

func Test(t *testing.T) { admittest.Run(t, alwaysadmit.Plugin) }
