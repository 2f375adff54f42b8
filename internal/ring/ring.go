// Package ring marks the tests that make test leaves out.
package ring

import "testing"

// Second leaves a test out of make test and of every go test -short. A test belongs to the second ring if it needs a quiet
// machine, a program that make test does not install, or more than 20 seconds. The reason says which of these, and
// stands in the list of skipped tests at the end of make test. make test-load runs the tests that call Second; it finds
// them by this call, so the call stands in the func of the test itself.
func Second(tb testing.TB, reason string) {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("Left out: %s. make test-load runs it.", reason)
	}
}
