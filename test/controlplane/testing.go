package controlplane

import "testing"

// StartForTest starts a control plane and stops it when the test ends. Progress goes to the test's output
// unless Options.Progress is set. A test's time-out includes the first build, which takes minutes, so build
// before testing (see README.md).
func StartForTest(tb testing.TB, o Options) *ControlPlane {
	tb.Helper()
	if o.Progress == nil {
		o.Progress = tb.Output()
	}
	c, err := Start(tb.Context(), o)
	if err != nil {
		tb.Fatalf("Starting the control plane: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("The ends of the control plane's logs:\n%s", c.Logs())
		}
		if err := c.Stop(); err != nil {
			tb.Errorf("Stopping the control plane: %v", err)
		}
	})
	return c
}
