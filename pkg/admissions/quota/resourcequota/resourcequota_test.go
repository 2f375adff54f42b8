package resourcequota_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/quota/resourcequota"
)

func Test(t *testing.T) { admittest.Run(t, resourcequota.Plugin) }
