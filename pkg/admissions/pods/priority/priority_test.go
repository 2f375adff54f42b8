package priority_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/priority"
)

func Test(t *testing.T) { admittest.Run(t, priority.Plugin) }
