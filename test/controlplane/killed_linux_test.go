package controlplane_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/postern-dev/postern/test/controlplane"
)

// helperDir is an environment variable. If it is set, the test binary runs as the helper of
// TestKilledStarterLeavesNothingRunning.
const helperDir = "POSTERN_TEST_HELPER_DIR"

func TestKilledStarterLeavesNothingRunning(t *testing.T) {
	t.Parallel()
	// The helper's time is bounded, so the binaries must be built before the helper starts.
	if _, err := controlplane.Build(t.Context(), "", t.Output(), controlplane.AllBinaries()...); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	helper := exec.Command(executable, "-test.run=^TestHelperStartsAndWaits$")
	helper.Env = append(os.Environ(), helperDir+"="+dir)
	helper.Stdout, helper.Stderr = os.Stderr, os.Stderr
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the helper has started its control plane", func() bool {
		_, err := os.Stat(filepath.Join(dir, "started"))
		return err == nil
	})
	if got := serversIn(t, dir); len(got) != 3 {
		t.Errorf("Running: %q, want three servers", got)
	}
	if err := helper.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = helper.Wait() // The helper was killed, so Wait returns an error.
	eventually(t, "nothing runs any more", func() bool { return len(serversIn(t, dir)) == 0 })
}

func TestHelperStartsAndWaits(t *testing.T) {
	dir := os.Getenv(helperDir)
	if dir == "" {
		t.Skip("This is the other process of TestKilledStarterLeavesNothingRunning.")
	}
	c := controlplane.StartForTest(t, controlplane.Options{Dir: dir, ControllerManager: true})
	if err := os.WriteFile(filepath.Join(dir, "started"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}
