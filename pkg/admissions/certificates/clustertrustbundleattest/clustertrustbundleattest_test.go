package clustertrustbundleattest_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/certificates/clustertrustbundleattest"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, clustertrustbundleattest.Plugin) }
