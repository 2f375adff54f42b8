package namespaceautoprovision_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/namespaces/namespaceautoprovision"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, namespaceautoprovision.Plugin) }
