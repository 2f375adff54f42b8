package runtimeclass_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/runtimeclass"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, runtimeclass.Plugin) }
