//go:build linux

package node

import (
	"strings"
	"testing"
)

// StartForTest starts a node and stops it when the test ends. The test is skipped, and says why, where no node can run.
// Build the binaries before: a test's time-out includes the build, which takes minutes.
func StartForTest(tb testing.TB) *Node {
	tb.Helper()
	if missing := Missing(tb.Context()); len(missing) > 0 {
		tb.Skipf("A node cannot run here: %s", strings.Join(missing, "; "))
	}
	n, err := Start(tb.Context(), Options{Progress: tb.Output()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("The ends of the node's logs:\n%s", n.Logs())
		}
		if err := n.Stop(); err != nil {
			tb.Errorf("Stopping the node: %v", err)
		}
	})
	return n
}
