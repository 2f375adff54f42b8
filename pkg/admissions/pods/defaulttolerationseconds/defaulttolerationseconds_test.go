package defaulttolerationseconds_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/defaulttolerationseconds"
)

func Test(t *testing.T) { admittest.Run(t, defaulttolerationseconds.Plugin) }
