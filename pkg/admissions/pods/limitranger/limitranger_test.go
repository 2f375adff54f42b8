package limitranger_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/limitranger"
)

func Test(t *testing.T) { admittest.Run(t, limitranger.Plugin) }
