package persistentvolumeclaimresize_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/storage/persistentvolumeclaimresize"
)

func Test(t *testing.T) { admittest.Run(t, persistentvolumeclaimresize.Plugin) }
