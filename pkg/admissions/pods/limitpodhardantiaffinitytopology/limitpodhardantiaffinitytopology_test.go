package limitpodhardantiaffinitytopology_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/limitpodhardantiaffinitytopology"
)

func Test(t *testing.T) { admittest.Run(t, limitpodhardantiaffinitytopology.Plugin) }
