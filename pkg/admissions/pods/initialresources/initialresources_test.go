package initialresources_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/initialresources"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, initialresources.Plugin) }
