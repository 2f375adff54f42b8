package segment_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/internal/segment"
)

// TestSegmentOfAKey checks that a segment does not change between versions: replicas of two versions accept each other's paths.
func TestSegmentOfAKey(t *testing.T) {
	got := segment.Of([]byte("a key of the replicas"))
	if want := "a8c57cdfc316866b8c68254c01351bb1"; got != want {
		t.Errorf("Got %s, want %s", got, want)
	}
	for s, want := range map[string]bool{got: true, "": false, "pods": false, got + "0": false, got[:31]: false, strings.ToUpper(got): false, got + "\n": false} {
		if segment.IsValid(s) != want {
			t.Errorf("%q: got %v, want %v", s, !want, want)
		}
	}
}

// TestAccepted covers what a replica with keys of its own accepts.
func TestAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := [][]byte{[]byte("one"), []byte("two")}
		s := segment.New(func() [][]byte { return keys })
		one, two, other, last := segment.Of(keys[0]), segment.Of(keys[1]), segment.Of([]byte("other")), segment.Of([]byte("last"))
		check := func(what string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, s.Accepted()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		check("Its own", one, two)
		s.Registered([]string{one, one})
		check("Its own registered", one, two)
		s.Saw([]string{other})
		check("Another one is seen", one, two, other)
		s.Registered([]string{other})
		keys = keys[:1]
		check("Another one is registered", one, other)
		time.Sleep(time.Hour)
		check("It stays registered", one, other)
		s.Registered([]string{last})
		check("Until it is not", one, last, other)
		time.Sleep(4 * time.Minute)
		check("It is accepted for some time", one, last, other)
		time.Sleep(time.Minute)
		check("And no longer", one, last)
		for i := range 20 {
			s.Registered([]string{segment.Of(fmt.Append(nil, i))})
		}
		if got := s.Accepted(); len(got) != 2+8 || !slices.Contains(got, segment.Of([]byte("11"))) || slices.Contains(got, segment.Of([]byte("10"))) {
			t.Errorf("Got %d segments, want its own, the registered one, and the last 8", len(got))
		}
		keys = nil
		check("Without a key")
	})
}
