package fleetquota_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/fleetquota/fleetquota"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, fleetquota.Plugin) }
