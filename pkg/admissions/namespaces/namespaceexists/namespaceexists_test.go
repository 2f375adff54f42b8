package namespaceexists_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/namespaces/namespaceexists"
)

func Test(t *testing.T) { admittest.Run(t, namespaceexists.Plugin) }
