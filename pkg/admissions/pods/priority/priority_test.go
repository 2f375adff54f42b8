package priority_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/priority"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, priority.Plugin) }
