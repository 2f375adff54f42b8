package namespacelifecycle_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/namespaces/namespacelifecycle"
)

func Test(t *testing.T) { admittest.Run(t, namespacelifecycle.Plugin) }
