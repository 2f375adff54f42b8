// Package twoservers compares Postern with kube-apiserver from end to end: the same requests go to two API
// servers, one with a plugin of its own and one with that of Postern, and their answers and what they store
// have to be equal. See README.md.
package twoservers

import (
	"fmt"
	"os"
	"testing"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// suite lends nothing: every API server here has flags of its own.
var suite = e2e.NewSuite(0, controlplane.Options{})

func TestMain(m *testing.M) {
	code := m.Run()
	if err := suite.Stop(); err != nil {
		fmt.Fprintf(os.Stderr, "Cleaning up: %v\n", err)
		code = 1
	}
	os.Exit(code)
}
