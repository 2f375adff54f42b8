package alwaysdeny_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/always/alwaysdeny"
)

func Test(t *testing.T) { admittest.Run(t, alwaysdeny.Plugin) }
