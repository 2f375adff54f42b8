package fleetquota_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/fleetquota/fleetquota"
)

func Test(t *testing.T) { admittest.Run(t, fleetquota.Plugin) }
