package router

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"
)

// WithSegments makes the router serve its services only below one of the accepted
// segments, /<segment>/pods/mutate, or at paths without a segment if one of them is
// "". A segment is registered with the API server, so a caller that knows it has
// read the webhook configurations. There are several while the segment is replaced:
// an API server calls by the old one and by the new one.
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
	given, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	got, known, bare := sha256.Sum256([]byte(given)), 0, false
	for _, segment := range r.segments() {
		if segment == "" {
			bare = true
			continue
		}
		want := sha256.Sum256([]byte(segment))
		known |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	if known == 1 && strings.HasPrefix(path, "/") {
		return "/" + rest, true
	}
	return path, bare
}
