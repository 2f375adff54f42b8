// Package segment keeps the secret segment before the registered paths, /<segment>/pods/mutate: which one to register, and
// which ones to accept.
package segment

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"sync"
	"time"
)

const (
	// digestBytes is the number of bytes of the digest in a segment. 128 bits cannot be guessed.
	digestBytes = 16
	// settleTime is how long the replicas may take to read a key that is new in the Secret.
	settleTime = 3 * readInterval
	// keepTime is how long a segment that is not registered any more is accepted, and maxKept the number of these segments. An API
	// server learns of another path in less than a second if it is healthy.
	keepTime = 5 * time.Minute
	maxKept  = 8
)

// Of derives a segment from a key. The key itself must not be in a path, because the webhook configurations are not
// confidential.
func Of(key []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("postern webhook path"))
	return hex.EncodeToString(mac.Sum(nil)[:digestBytes])
}

var form = regexp.MustCompile(`^[0-9a-f]{32}$`)

// IsValid reports whether a part of a path has the form of a segment.
func IsValid(s string) bool { return form.MatchString(s) }

// Set holds the segments that a replica accepts. These are those of its own keys, and those that are registered: another replica,
// which may have had another key, still gets requests by them, and so does this one. Nobody but those who may write webhook
// configurations can add one. All methods are safe for concurrent use.
type Set struct {
	keys func() [][]byte

	mu         sync.Mutex
	registered []string
	kept       []kept
	// fresh is when this replica read a key that others may not have read yet.
	fresh time.Time
	// changed is closed when another segment is to be registered.
	changed chan struct{}
	first   string
}

// kept is a segment that was registered until a moment.
type kept struct {
	segment string
	until   time.Time
}

// New returns a Set with the segments of keys, the first of which is to be registered. Without a key, there is no segment.
func New(keys func() [][]byte) *Set {
	return &Set{keys: keys, changed: make(chan struct{})}
}

// Accepted returns the segments that this replica accepts. The first one is to be registered. The list is empty if the paths
// have no segment.
func (s *Set) Accepted() []string {
	keys := s.keys()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted(keys)
}

func (s *Set) accepted(keys [][]byte) []string {
	if len(keys) == 0 {
		return nil
	}
	var own []string
	for _, key := range keys {
		own = append(own, Of(key))
	}
	var out []string
	add := func(segments ...string) {
		for _, segment := range segments {
			if !slices.Contains(out, segment) {
				out = append(out, segment)
			}
		}
	}
	if time.Since(s.fresh) < settleTime && !slices.Contains(s.registered, own[0]) {
		add(s.registered...) // All replicas accept these.
	}
	add(own...)
	add(s.registered...)
	for _, k := range s.kept {
		if time.Since(k.until) < keepTime {
			add(k.segment)
		}
	}
	return out
}

// Registered tells which segments are registered, and no others.
func (s *Set) Registered(segments []string) {
	segments = slices.Compact(slices.Sorted(slices.Values(segments)))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, old := range s.registered {
		if !slices.Contains(segments, old) {
			s.keep(old)
		}
	}
	s.registered = segments
}

// Saw tells of segments that were just registered. An API server that learns of them at the same time may call by them at once.
func (s *Set) Saw(segments []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registered = slices.Compact(slices.Sorted(slices.Values(append(segments, s.registered...))))
}

// keep accepts a segment for some time more. The caller holds the lock.
func (s *Set) keep(segment string) {
	s.kept = append(slices.DeleteFunc(s.kept, func(k kept) bool { return k.segment == segment }), kept{segment, time.Now()})
	s.kept = s.kept[max(0, len(s.kept)-maxKept):]
}

// Changed returns a channel that is closed when another segment is to be registered than before, because of a key that the
// replicas share. Whoever owns the keys of New tells of their changes.
func (s *Set) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// announce closes the channel of Changed if another segment is first than at the last call.
func (s *Set) announce() {
	now := s.Accepted()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(now) == 0 || now[0] == s.first {
		return
	}
	s.first = now[0]
	close(s.changed)
	s.changed = make(chan struct{})
}

// isRegistered reports whether the segment of a key is registered.
func (s *Set) isRegistered(key []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.registered, Of(key))
}

// replace begins the time in which others may not have read a key yet, and keeps accepting the segment of the key before it, if any.
func (s *Set) replace(old []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh = time.Now()
	if old != nil {
		s.keep(Of(old))
	}
}
