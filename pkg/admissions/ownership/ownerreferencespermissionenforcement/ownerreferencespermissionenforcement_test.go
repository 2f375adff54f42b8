package ownerreferencespermissionenforcement_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/ownership/ownerreferencespermissionenforcement"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, ownerreferencespermissionenforcement.Plugin) }
