package suggest_test

import (
	"slices"
	"testing"

	"github.com/postern-dev/postern/internal/suggest"
)

func TestName(t *testing.T) {
	names := []string{"v", "cert-dir", "AlwaysPullImages", "AlwaysPullImage2"}
	for misspelt, want := range map[string]string{
		"AlwaysPullImage": "AlwaysPullImages", "alwayspullimages": "AlwaysPullImages", " AlwaysPullImages ": "AlwaysPullImages",
		"cert-d": "cert-dir", "cert": "", "V": "v", "x": "", "vv": "", "AlwaysPull": "", "": "",
	} {
		if got := suggest.Name(misspelt, names); got != want {
			t.Errorf("%q: got %q, want %q", misspelt, got, want)
		}
	}
	if got := suggest.Name("a", nil); got != "" {
		t.Errorf("Got %q of no names", got)
	}
}

func TestByWords(t *testing.T) {
	names := []string{"api-server-plugins", "ca-file", "client-ca-file", "config-control-file", "disable-plugins", "enable-plugins", "long-control-config-file"}
	for misspelt, want := range map[string][]string{
		"config": {"long-control-config-file"}, "Long_Config": {"long-control-config-file"}, "control-config-file": {"long-control-config-file"},
		"ca": {"ca-file"}, "client-file": {"client-ca-file"}, "plugins": {"disable-plugins", "enable-plugins"},
		"server": nil, "config-long": nil, "conf": nil, "-": nil, "": nil,
	} {
		if got := suggest.ByWords(misspelt, names); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", misspelt, got, want)
		}
	}
}
