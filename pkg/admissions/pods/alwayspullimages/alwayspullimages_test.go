package alwayspullimages_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/alwayspullimages"
)

func Test(t *testing.T) { admittest.Run(t, alwayspullimages.Plugin) }
