package names_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/names"
)

func TestCanExist(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "a.b-c": true, "kube-system": true, "A_b": true, strings.Repeat("a", 253): true,
		"": false, ".": false, "..": false, "a/b": false, "a%b": false, "%": false, strings.Repeat("a", 254): false,
	} {
		if got := names.CanExist(name); got != want {
			t.Errorf("%q: got %t, want %t", name, got, want)
		}
	}
}
