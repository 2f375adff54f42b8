package certificatesigning_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/certificates/certificatesigning"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, certificatesigning.Plugin) }
