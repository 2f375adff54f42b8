package deletiongate_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/deletion/deletiongate"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, deletiongate.Plugin) }
