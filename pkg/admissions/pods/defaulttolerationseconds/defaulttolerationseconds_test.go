package defaulttolerationseconds_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/defaulttolerationseconds"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, defaulttolerationseconds.Plugin) }
