package defaultstorageclass_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/storage/defaultstorageclass"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, defaultstorageclass.Plugin) }
