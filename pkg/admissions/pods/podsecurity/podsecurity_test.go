package podsecurity_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/podsecurity"
)

func Test(t *testing.T) { admittest.Run(t, podsecurity.Plugin) }
