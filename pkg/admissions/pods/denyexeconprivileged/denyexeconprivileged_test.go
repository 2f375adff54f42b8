package denyexeconprivileged_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/denyexeconprivileged"
)

func Test(t *testing.T) { admittest.Run(t, denyexeconprivileged.Plugin) }
