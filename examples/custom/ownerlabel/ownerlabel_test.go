package ownerlabel_test

import (
	"testing"

	"example.com/custom/ownerlabel"

	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, ownerlabel.Plugin) }
