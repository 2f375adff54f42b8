package controlplane

import (
	"os"
	"slices"
	"testing"
)

func TestCallersFlagsReplaceOurs(t *testing.T) {
	for name, test := range map[string]struct {
		theirs            []string
		controllerManager bool
		want              []string
	}{
		"none":                       {nil, true, []string{"--a=1", "--b=1"}},
		"another value":              {[]string{"--a=2"}, true, []string{"--b=1", "--a=2"}},
		"nobody makes accounts":      {nil, false, []string{"--a=1", "--b=1", disableServiceAccount}},
		"accounts are not wanted":    {[]string{"--disable-admission-plugins=X"}, false, []string{"--a=1", "--b=1", "--disable-admission-plugins=X", disableServiceAccount}},
		"accounts are wanted anyhow": {[]string{"--enable-admission-plugins=X,ServiceAccount"}, false, []string{"--a=1", "--b=1", "--enable-admission-plugins=X,ServiceAccount"}},
	} {
		got := withServiceAccountPolicy(override([]string{"--a=1", "--b=1"}, test.theirs), test.controllerManager)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
