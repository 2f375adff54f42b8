package imagepolicywebhook_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/imagepolicywebhook"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, imagepolicywebhook.Plugin) }
