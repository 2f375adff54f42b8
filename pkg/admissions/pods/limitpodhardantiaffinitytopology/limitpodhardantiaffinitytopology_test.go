package limitpodhardantiaffinitytopology_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/limitpodhardantiaffinitytopology"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, limitpodhardantiaffinitytopology.Plugin) }
