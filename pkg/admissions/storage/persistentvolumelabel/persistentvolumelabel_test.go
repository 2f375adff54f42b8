package persistentvolumelabel_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/storage/persistentvolumelabel"
)

func Test(t *testing.T) { admittest.Run(t, persistentvolumelabel.Plugin) }
