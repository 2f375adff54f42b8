package command_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/cmd/postern/app/command"
)

// TestMigrateEndsWithItsContext cancels the context while the command waits for its standard input.
func TestMigrateEndsWithItsContext(t *testing.T) {
	stdin, keyboard := io.Pipe()
	defer keyboard.Close()
	cmd := command.OfPlugins([]string{"PodSecurityPolicy"}, "")[0]
	cmd.SetArgs([]string{"psp"})
	cmd.SetIn(stdin)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	ended := make(chan error)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	if _, err := io.WriteString(keyboard, "a"); err != nil {
		t.Fatal(err)
	}
	cancel(interrupted)
	if err := <-ended; !errors.Is(err, interrupted) {
		t.Errorf("Got %v", err)
	}
}

// TestMigrateReads migrates a file and the standard input.
func TestMigrateReads(t *testing.T) {
	preset := func(name string) string {
		return "apiVersion: settings.k8s.io/v1alpha1\nkind: PodPreset\nmetadata: {name: " + name + "}\n"
	}
	policy := func(name string) string {
		return "apiVersion: policy/v1beta1\nkind: PodSecurityPolicy\nmetadata: {name: " + name + "}\n"
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"preset.yaml": preset("of-file"), "policy.yaml": policy("of-file"), "empty.yaml": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		args      []string
		want, err string
	}{
		"policies of a file":             {args: []string{"psp", "policy.yaml"}, want: "name: of-file"},
		"policies of the standard input": {args: []string{"psp"}, want: "name: of-input"},
		"policies of the dash":           {args: []string{"psp", "-"}, want: "name: of-input"},
		"presets of a file":              {args: []string{"podpreset", "preset.yaml", "--related-only"}, want: "name: of-file"},
		"presets of the standard input":  {args: []string{"podpreset"}, want: "name: of-input"},
		"two files":                      {args: []string{"psp", "policy.yaml", "policy.yaml"}, err: "got 2 arguments, want one file, or none or - for the standard input"},
		"a file that is not there":       {args: []string{"psp", "no.yaml"}, err: "open no.yaml: no such file or directory"},
		"a file without a name":          {args: []string{"psp", ""}, err: "the file name is empty"},
		"an empty file":                  {args: []string{"psp", "empty.yaml"}, err: "empty.yaml: the input is empty: nothing to migrate: "},
		"a folder":                       {args: []string{"podpreset", "."}, err: "read .: is a directory"},
		"a file that has nothing to do":  {args: []string{"psp", "preset.yaml"}, err: "preset.yaml: nothing to migrate: "},
		"the dash and a file":            {args: []string{"psp", "-", "policy.yaml"}, err: "got 2 arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(dir)
			cmd := command.OfPlugins([]string{"PodSecurityPolicy", "PodPreset"}, "")[0]
			var out strings.Builder
			cmd.SetArgs(c.args)
			cmd.SetIn(strings.NewReader(policy("of-input") + "---\n" + preset("of-input")))
			cmd.SetOut(&out)
			cmd.SetErr(io.Discard)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			err := cmd.ExecuteContext(t.Context())
			if (err == nil) != (c.err == "") || (err != nil && !strings.HasPrefix(err.Error(), c.err)) {
				t.Errorf("Got error %v, want %q", err, c.err)
			}
			if (out.Len() > 0) != (c.want != "") || !strings.Contains(out.String(), c.want) {
				t.Errorf("Got %s, want %q", out.String(), c.want)
			}
		})
	}
}
