package runtimeclass_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/admissions/pods/runtimeclass"
)

func Test(t *testing.T) { admittest.Run(t, runtimeclass.Plugin) }
