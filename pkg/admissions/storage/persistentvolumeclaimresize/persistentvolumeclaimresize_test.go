package persistentvolumeclaimresize_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/storage/persistentvolumeclaimresize"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, persistentvolumeclaimresize.Plugin) }
