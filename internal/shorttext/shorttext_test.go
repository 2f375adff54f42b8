package shorttext_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/shorttext"
)

func TestOf(t *testing.T) {
	for text, want := range map[string]string{"": "", "abc": "abc", "abcd": "abc ...", "aü": "aü", "abü": "ab ...", "abüc": "ab ..."} {
		if got := shorttext.Of(text, 3); got != want {
			t.Errorf("Of(%q, 3) = %q, want %q", text, got, want)
		}
	}
}
