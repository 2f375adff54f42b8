package eventratelimit_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/events/eventratelimit"
)

func Test(t *testing.T) { admittest.Run(t, eventratelimit.Plugin) }
