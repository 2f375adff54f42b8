package alwayspullimages_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/alwayspullimages"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, alwayspullimages.Plugin) }
