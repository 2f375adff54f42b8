package initialresources_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/initialresources"
)

func Test(t *testing.T) { admittest.Run(t, initialresources.Plugin) }
