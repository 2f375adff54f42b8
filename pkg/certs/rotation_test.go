package certs_test

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/pkg/certs"
)

// TestReplacedCA rotates the CA as documented at Store. In every step, clients with the bundle of the previous or
// the current step accept the server.
func TestReplacedCA(t *testing.T) {
	clock, dir, nextDir := newClock(), t.TempDir(), t.TempDir()
	a := newAuthority(t, certs.NewDirStore(dir), options(clock))
	next := newAuthority(t, certs.NewDirStore(nextDir), options(clock))
	address := listen(t, a)
	run(t, a, clock)

	both := append(a.Bundle(), next.Bundle()...)
	steps := []struct {
		file    string
		content []byte
		bundle  []byte
		renewed bool
	}{
		{"ca.crt", both, both, false},
		{"ca.key", read(t, nextDir, "ca.key"), both, true},
		{"ca.crt", next.Bundle(), next.Bundle(), false},
	}
	for i, step := range steps {
		before, held, changed := leaf(t, a), a.Bundle(), a.Changed()
		replaceFile(t, filepath.Join(dir, step.file), step.content)
		clock.Step(time.Minute)
		if bytes.Equal(held, step.bundle) {
			eventually(t, "the new CA signs", func() bool { return !leaf(t, a).Equal(before) })
		} else {
			<-changed
		}
		if diff := cmp.Diff(string(step.bundle), string(a.Bundle())); diff != "" {
			t.Errorf("Bundle after step %d (-want +got):\n%s", i, diff)
		}
		if got := !leaf(t, a).Equal(before); got != step.renewed {
			t.Errorf("Step %d renewed the certificate: %v, want %v", i, got, step.renewed)
		}
		for _, bundle := range [][]byte{held, a.Bundle()} {
			if err := shake(t.Context(), address, serverName, bundle, clock.Now()); err != nil {
				t.Errorf("Handshake after step %d: %v", i, err)
			}
		}
	}
}
