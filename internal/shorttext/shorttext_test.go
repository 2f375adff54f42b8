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

func TestLine(t *testing.T) {
	for text, want := range map[string]string{"": "", "a\nb": "a b", "a\r\nb": "a  b", "a\x00\u0085b": "a  b", "ü\x7f": "ü ", "a\nbcdefg": "a bcde ..."} {
		if got := shorttext.Line(text, 6); got != want {
			t.Errorf("Line(%q, 6) = %q, want %q", text, got, want)
		}
	}
}
