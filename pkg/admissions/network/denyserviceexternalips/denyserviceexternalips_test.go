package denyserviceexternalips_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/network/denyserviceexternalips"
)

func Test(t *testing.T) { admittest.Run(t, denyserviceexternalips.Plugin) }
