package storageobjectinuseprotection_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/storage/storageobjectinuseprotection"
)

func Test(t *testing.T) { admittest.Run(t, storageobjectinuseprotection.Plugin) }
