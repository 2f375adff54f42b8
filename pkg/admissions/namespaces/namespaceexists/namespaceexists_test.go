package namespaceexists_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/namespaces/namespaceexists"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, namespaceexists.Plugin) }
