package certificatesubjectrestriction_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/certificates/certificatesubjectrestriction"
)

func Test(t *testing.T) { admittest.Run(t, certificatesubjectrestriction.Plugin) }
