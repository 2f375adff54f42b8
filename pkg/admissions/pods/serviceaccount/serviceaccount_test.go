package serviceaccount_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/serviceaccount"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, serviceaccount.Plugin) }
