package storageobjectinuseprotection_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/storage/storageobjectinuseprotection"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, storageobjectinuseprotection.Plugin) }
