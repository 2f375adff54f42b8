package segment_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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

// check compares the segments that a Set accepts, the one to register, and those that are left alone.
func check(t *testing.T, what string, s *segment.Set, accepted []string, first string, others ...string) {
	t.Helper()
	if diff := cmp.Diff(slices.Sorted(slices.Values(accepted)), slices.Sorted(slices.Values(s.Accepted()))); diff != "" {
		t.Errorf("%s: accepted (-want +got):\n%s", what, diff)
	}
	target, rest := s.Target()
	if target != first {
		t.Errorf("%s: got %q to register, want %q", what, target, first)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(others)), slices.Sorted(slices.Values(rest)), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: left alone (-want +got):\n%s", what, diff)
	}
}

// TestSegments covers a replica with keys of its own, which are not Shared.
func TestSegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := [][]byte{[]byte("one"), []byte("two")}
		s := segment.New(func() [][]byte { return keys })
		one, two, other, last := segment.Of(keys[0]), segment.Of(keys[1]), segment.Of([]byte("other")), segment.Of([]byte("last"))
		check(t, "Its own", s, []string{one, two}, one, two)
		s.Registered([]string{one, one})
		check(t, "Its own registered", s, []string{one, two}, one, two)
		s.Saw([]string{other})
		check(t, "Another one is seen", s, []string{one, two, other}, one, two, other)
		s.Registered([]string{other})
		keys = keys[:1]
		check(t, "Another one is registered", s, []string{one, other}, one, other)
		time.Sleep(9 * time.Minute)
		s.Registered([]string{other})
		s.Saw([]string{other})
		check(t, "It is left alone", s, []string{one, other}, one, other)
		time.Sleep(time.Minute)
		check(t, "Until it is replaced", s, []string{one, other}, one)
		s.Registered([]string{last})
		check(t, "It is not registered any more", s, []string{one, last, other}, one, last)
		time.Sleep(9 * time.Minute)
		check(t, "It is accepted for some time", s, []string{one, last, other}, one, last)
		time.Sleep(time.Minute)
		check(t, "And no longer", s, []string{one, last}, one)
		for i := range 20 {
			s.Registered([]string{segment.Of(fmt.Append(nil, i))})
		}
		if got := s.Accepted(); len(got) != 2+8 || !slices.Contains(got, segment.Of([]byte("11"))) || slices.Contains(got, segment.Of([]byte("10"))) {
			t.Errorf("Got %d segments, want its own, the registered one, and the last 8", len(got))
		}
	})
}

// TestNoSegment covers replicas without a key beside those with one: both accept paths with and without a segment while these are
// registered.
func TestNoSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys [][]byte
		s := segment.New(func() [][]byte { return keys })
		one := segment.Of([]byte("one"))
		check(t, "Nothing is registered", s, []string{""}, "")
		s.Registered([]string{one})
		check(t, "A segment is registered", s, []string{"", one}, "", one)
		s.Registered([]string{""})
		keys = [][]byte{[]byte("one")}
		time.Sleep(10 * time.Minute)
		check(t, "A path without a segment is registered", s, []string{"", one}, one)
		s.Registered([]string{one})
		time.Sleep(10 * time.Minute)
		check(t, "Only the segment is registered", s, []string{one}, one)
	})
}
