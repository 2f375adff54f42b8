package certificateapproval_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/certificates/certificateapproval"
)

func Test(t *testing.T) { admittest.Run(t, certificateapproval.Plugin) }
