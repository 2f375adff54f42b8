package suggest_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/suggest"
)

func TestName(t *testing.T) {
	names := []string{"v", "cert-dir", "AlwaysPullImages", "AlwaysPullImage2"}
	for misspelt, want := range map[string]string{
		"AlwaysPullImage": "AlwaysPullImages", "alwayspullimages": "AlwaysPullImages", " AlwaysPullImages ": "AlwaysPullImages",
		"cert": "cert-dir", "V": "v", "x": "", "vv": "", "AlwaysPull": "", "": "",
	} {
		if got := suggest.Name(misspelt, names); got != want {
			t.Errorf("%q: got %q, want %q", misspelt, got, want)
		}
	}
	if got := suggest.Name("a", nil); got != "" {
		t.Errorf("Got %q of no names", got)
	}
}
