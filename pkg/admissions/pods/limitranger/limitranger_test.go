package limitranger_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/limitranger"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, limitranger.Plugin) }
