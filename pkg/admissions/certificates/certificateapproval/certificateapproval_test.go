package certificateapproval_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/certificates/certificateapproval"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, certificateapproval.Plugin) }
