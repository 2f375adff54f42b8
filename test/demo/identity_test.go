package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnknownPlugin checks that the demo reports a plugin that does not exist in Postern's words, before it starts anything.
func TestUnknownPlugin(t *testing.T) {
	program := filepath.Join(t.TempDir(), "postern")
	script := "#!/bin/sh\ncase $2 in *=Known) echo 'kind: ClusterRole';; *) echo \"postern: ${2#*=}: there is no such plugin\" >&2; exit 2;; esac\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	d := &demo{options: options{postern: program, plugins: []string{"Known"}}}
	if err := d.printRoles(t.Context()); err != nil || !strings.Contains(d.roles, "ClusterRole") {
		t.Errorf("Got the roles %q, %v", d.roles, err)
	}
	d.plugins = []string{"Unknown"}
	if _, err := d.start(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "Unknown: there is no such plugin") {
		t.Errorf("Got %v, want Postern's message", err)
	}
}
