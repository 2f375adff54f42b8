package router

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"
)

// WithSegments makes the router serve its services only below one of the accepted
// segments, /<segment>/pods/mutate. A segment is registered with the API server, so
// a caller that knows it has read the webhook configurations. There are several
// while the segment is replaced: an API server calls by the old one and by the new
// one. The paths have no segment while the list is empty.
func WithSegments(accepted func() []string) Option {
	return func(r *Router) { r.segments = accepted }
}

// servicePath removes the segment from the path of a request. It returns false for
// a path without an accepted segment. The time it takes does not depend on the
// path, so that a caller cannot find the segment by trying.
func (r *Router) servicePath(path string) (string, bool) {
	if r.segments == nil {
		return path, true
	}
	segments := r.segments()
	if len(segments) == 0 {
		return path, true
	}
	given, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	got, known := sha256.Sum256([]byte(given)), 0
	for _, segment := range segments {
		want := sha256.Sum256([]byte(segment))
		known |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	return "/" + rest, known == 1 && strings.HasPrefix(path, "/")
}
