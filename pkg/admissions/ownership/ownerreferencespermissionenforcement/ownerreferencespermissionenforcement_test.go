package ownerreferencespermissionenforcement_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/ownership/ownerreferencespermissionenforcement"
)

func Test(t *testing.T) { admittest.Run(t, ownerreferencespermissionenforcement.Plugin) }
