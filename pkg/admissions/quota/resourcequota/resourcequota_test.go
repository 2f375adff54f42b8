package resourcequota_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/quota/resourcequota"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, resourcequota.Plugin) }
