package clustertrustbundleattest_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/certificates/clustertrustbundleattest"
)

func Test(t *testing.T) { admittest.Run(t, clustertrustbundleattest.Plugin) }
