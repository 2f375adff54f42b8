package postern

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// program writes a program with the given shell script.
func program(t *testing.T, script string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "postern")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return binary
}

func TestPlugins(t *testing.T) {
	got, err := Plugins(t.Context(), program(t, `[ "$*" = "plugins -o name" ] && printf 'LimitRanger\nPriority\n'`))
	if want := []string{"LimitRanger", "Priority"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("Got %q, %v, want %q", got, err, want)
	}
	if got, err := Plugins(t.Context(), program(t, ":")); err == nil {
		t.Errorf("Got %q from a program without plugins, want an error", got)
	}
}

func TestAllRegistered(t *testing.T) {
	for name, test := range map[string]struct{ metrics, want string }{
		"all are":      {"x 1\npostern_webhook_registered{name=\"a\"} 1\npostern_webhook_registered{name=\"b\"} 1\n", ""},
		"one is not":   {"postern_webhook_registered{name=\"a\"} 1\npostern_webhook_registered{name=\"b\"} 0\n", `{name="b"} is 0`},
		"no series":    {"# TYPE postern_webhook_registered gauge\n", "no webhook configuration"},
		"empty answer": {"", "no webhook configuration"},
	} {
		err := allRegistered(test.metrics)
		if test.want == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: the error is %v, want %q", name, err, test.want)
		}
	}
}

func TestPosternThatExitsIsReportedWithItsLog(t *testing.T) {
	_, err := start(t.Context(), Options{Binary: program(t, "echo a message; exit 3"), Dir: t.TempDir()}, "")
	if err == nil || !strings.Contains(err.Error(), "it exited (exit status 3)") || !strings.Contains(err.Error(), "a message") {
		t.Errorf("The error is %v, want the exit status and the log", err)
	}
}
