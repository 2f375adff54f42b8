package imagepolicywebhook_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/imagepolicywebhook"
)

func Test(t *testing.T) { admittest.Run(t, imagepolicywebhook.Plugin) }
