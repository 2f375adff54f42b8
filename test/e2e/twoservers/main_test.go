// Package twoservers compares Postern with kube-apiserver from end to end. The tests send the same requests to two
// API servers. The first one runs the in-tree plugin, the second one calls Postern's plugin. The answers and the
// stored objects must be equal. See README.md.
package twoservers

import (
	"fmt"
	"os"
	"testing"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// suite has no shared control planes, because every API server of these tests needs specific flags.
var suite = e2e.NewSuite(controlplane.Options{})

func TestMain(m *testing.M) {
	code := m.Run()
	if err := suite.Stop(); err != nil {
		fmt.Fprintf(os.Stderr, "Cleaning up: %v\n", err)
		code = 1
	}
	os.Exit(code)
}
