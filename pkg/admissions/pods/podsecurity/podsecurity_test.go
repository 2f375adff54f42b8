package podsecurity_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/podsecurity"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, podsecurity.Plugin) }
