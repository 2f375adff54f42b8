package alwaysadmit_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/always/alwaysadmit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, alwaysadmit.Plugin) }
