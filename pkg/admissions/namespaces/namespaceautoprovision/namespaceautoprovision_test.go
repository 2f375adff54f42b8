package namespaceautoprovision_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/namespaces/namespaceautoprovision"
)

func Test(t *testing.T) { admittest.Run(t, namespaceautoprovision.Plugin) }
