package certificatesigning_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/certificates/certificatesigning"
)

func Test(t *testing.T) { admittest.Run(t, certificatesigning.Plugin) }
