package certificatesubjectrestriction_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/certificates/certificatesubjectrestriction"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, certificatesubjectrestriction.Plugin) }
