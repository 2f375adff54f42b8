// Package segment keeps the secret segment before the registered paths, /<segment>/pods/mutate: which one to register, and
// which ones to accept. The segment of paths without one is "".
package segment

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
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
	// keepTime is how long a segment that is not registered any more is accepted, and maxKept the number of these segments. It is
	// longer than the time between two looks at what is registered, which is 5 min if no event is missed. It is also how long a
	// registered segment that is of no own key is left alone: the key may be read in a moment.
	keepTime = 10 * time.Minute
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

	mu sync.Mutex
	// registered are the registered segments, and since when this replica knows that.
	registered map[string]time.Time
	kept       []kept
	// fresh is when this replica read a key that others may not have read yet.
	fresh time.Time
	// changed is closed when another segment is to be registered than before, which is announced.
	changed   chan struct{}
	announced string
}

// kept is a segment that was registered until a moment.
type kept struct {
	segment string
	until   time.Time
}

// New returns a Set with the segments of keys, the first of which is to be registered. Without a key, the paths have no segment.
func New(keys func() [][]byte) *Set {
	return &Set{keys: keys, registered: map[string]time.Time{}, changed: make(chan struct{})}
}

// own returns the segments of the own keys. The caller does not hold the lock.
func (s *Set) own() []string {
	var out []string
	for _, key := range s.keys() {
		out = append(out, Of(key))
	}
	if out == nil {
		return []string{""}
	}
	return out
}

// Accepted returns the segments that this replica accepts.
func (s *Set) Accepted() []string {
	out := s.own()
	s.mu.Lock()
	defer s.mu.Unlock()
	add := func(segment string) {
		if !slices.Contains(out, segment) {
			out = append(out, segment)
		}
	}
	for segment := range s.registered {
		add(segment)
	}
	for _, k := range s.kept {
		if time.Since(k.until) < keepTime {
			add(k.segment)
		}
	}
	return out
}

// Target returns the segment to register, and others that are left alone where they are registered: replicas learn of a new key one
// after the other.
func (s *Set) Target() (first string, others []string) {
	own := s.own()
	s.mu.Lock()
	defer s.mu.Unlock()
	registered := slices.Sorted(maps.Keys(s.registered))
	first, others = own[0], own[1:]
	if len(registered) > 0 && !slices.Contains(registered, first) && time.Since(s.fresh) < settleTime {
		first, others = registered[0], own // All replicas accept what is registered.
	}
	for _, segment := range registered {
		if segment != first && !slices.Contains(others, segment) && time.Since(s.registered[segment]) < keepTime {
			others = append(others, segment)
		}
	}
	return first, others
}

// Registered tells which segments are registered, and no others.
func (s *Set) Registered(segments []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for segment := range s.registered {
		if !slices.Contains(segments, segment) {
			delete(s.registered, segment)
			s.keep(segment)
		}
	}
	s.add(segments)
}

// Saw tells of segments that were just registered. An API server that learns of them at the same time may call by them at once.
func (s *Set) Saw(segments []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(segments)
}

// add notes that segments are registered. The caller holds the lock.
func (s *Set) add(segments []string) {
	for _, segment := range segments {
		if _, known := s.registered[segment]; !known {
			s.registered[segment] = time.Now()
		}
	}
}

// keep accepts a segment for some time more. The caller holds the lock.
func (s *Set) keep(segment string) {
	s.kept = append(slices.DeleteFunc(s.kept, func(k kept) bool { return k.segment == segment }), kept{segment, time.Now()})
	s.kept = s.kept[max(0, len(s.kept)-maxKept):]
}

// Changed returns a channel that is closed when another segment is to be registered than before, if the key is a Shared one.
// certs.Source tells of other keys.
func (s *Set) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// announce closes the channel of Changed if another segment is to be registered than at the last call.
func (s *Set) announce() {
	first, _ := s.Target()
	s.mu.Lock()
	defer s.mu.Unlock()
	if first == s.announced {
		return
	}
	s.announced = first
	close(s.changed)
	s.changed = make(chan struct{})
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
