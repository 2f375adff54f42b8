package certs_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/postern-dev/postern/pkg/certs"
)

// TestFolderRotates rotates the CA in a folder. The clients trust the bundle that the process published before.
func TestFolderRotates(t *testing.T) {
	clock, dir := newClock(), t.TempDir()
	o := options(clock)
	o.CAValidity = 30 * day
	store := &flaky{Store: certs.NewDirStore(dir)}
	a := newAuthority(t, store, o)
	a.Held(nil)
	first := read(t, dir, "ca.key")
	address := listen(t, a)
	run(t, a, clock)

	held := a.Bundle()
	for range 30 {
		for _, d := range []time.Duration{day, time.Minute, time.Minute} {
			step(t, clock, store, d)
			a.Held([][]byte{held})
			if err := shake(t.Context(), address, serverName, held, clock.Now()); err != nil {
				t.Fatalf("Handshake with the bundle that was published before: %v", err)
			}
			held = a.Bundle()
			a.Held([][]byte{held})
		}
	}
	if bytes.Equal(first, read(t, dir, "ca.key")) {
		t.Error("The CA was not replaced")
	}
	// A new process continues with the rotated CA.
	again := newAuthority(t, certs.NewDirStore(dir), o)
	if !bytes.Equal(again.Bundle(), a.Bundle()) {
		t.Error("The next process has another bundle")
	}
	if got := len(parse(t, a.Bundle())); got != 1 {
		t.Errorf("There are %d CAs in the bundle in the end, want 1", got)
	}
	wantFiles(t, dir, "ca.crt", "ca.key")
}
