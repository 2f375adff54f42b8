package persistentvolumelabel_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/storage/persistentvolumelabel"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, persistentvolumelabel.Plugin) }
