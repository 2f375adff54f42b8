package denyserviceexternalips_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/network/denyserviceexternalips"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, denyserviceexternalips.Plugin) }
