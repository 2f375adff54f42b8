package namespacelifecycle_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/namespaces/namespacelifecycle"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, namespacelifecycle.Plugin) }
