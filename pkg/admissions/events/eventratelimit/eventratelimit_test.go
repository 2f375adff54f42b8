package eventratelimit_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/events/eventratelimit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, eventratelimit.Plugin) }
