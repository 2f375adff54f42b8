package serviceaccount_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/serviceaccount"
)

func Test(t *testing.T) { admittest.Run(t, serviceaccount.Plugin) }
