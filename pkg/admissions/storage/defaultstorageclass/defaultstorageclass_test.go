package defaultstorageclass_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/storage/defaultstorageclass"
)

func Test(t *testing.T) { admittest.Run(t, defaultstorageclass.Plugin) }
