package deletiongate_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/deletion/deletiongate"
)

func Test(t *testing.T) { admittest.Run(t, deletiongate.Plugin) }
