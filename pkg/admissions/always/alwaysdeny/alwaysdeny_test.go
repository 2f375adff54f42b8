package alwaysdeny_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/always/alwaysdeny"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, alwaysdeny.Plugin) }
