package app_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/pkg/admissions"
)

var update = flag.Bool("update", false, "write the help text into testdata")

// TestHelpText compares the whole help with the files help-<columns>.txt.
func TestHelpText(t *testing.T) {
	for _, columns := range []string{"80", "120"} {
		t.Run(columns, func(t *testing.T) {
			t.Setenv("COLUMNS", columns)
			_, got, _ := runApp(t.Context(), "--help")
			file := filepath.Join("testdata", "help-"+columns+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("The help differs from %s; -update writes the file (-want +got):\n%s", file, diff)
			}
		})
	}
}

// TestHelpFits checks that each command's help has no line above 80 columns if the output is no terminal. A line with
// a single long word or with an example is excepted.
func TestHelpFits(t *testing.T) {
	t.Setenv("COLUMNS", "")
	for _, command := range []string{"", "serve", "plugins", "check-config", "rbac", "uninstall", "rotate-ca", "migrate", "migrate psp", "migrate podpreset", "fleetquota", "fleetquota reclaim", "version"} {
		_, help, _ := runApp(t.Context(), append(strings.Fields(command), "--help")...)
		for line := range strings.Lines(help) {
			text := strings.TrimSpace(line)
			if len(line) > 81 && strings.Contains(text, " ") && !strings.HasPrefix(text, "--") && !strings.Contains(line, "kubectl") && !strings.HasPrefix(text, "postern ") {
				t.Errorf("postern %s --help: got %d columns: %s", command, len(line)-1, text)
			}
		}
	}
}

// TestPluginNames checks the output that scripts read: one name a line, and no look at a cluster.
func TestPluginNames(t *testing.T) {
	code, stdout, stderr := runApp(t.Context(), "plugins", "-o", "name")
	if want := strings.Join(admissions.Families().Names(), "\n") + "\n"; code != 0 || stdout != want || stderr != "" {
		t.Errorf("Got code %d, %q and %q, want %q", code, stdout, stderr, want)
	}
}
