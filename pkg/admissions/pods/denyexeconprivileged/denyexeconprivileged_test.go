package denyexeconprivileged_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/denyexeconprivileged"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, denyexeconprivileged.Plugin) }
