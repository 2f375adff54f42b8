package router

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"strings"
)

// segmentBytes is the number of bytes of the digest in a registered path. 128 bits
// cannot be guessed.
const segmentBytes = 16

// WithPathKeys makes the router serve its services only below a segment that is
// derived from a key, /<segment>/pods/mutate. The segment is registered with the
// API server, so a caller that knows it has read the webhook configurations. The
// router accepts the segment of every key: while a key is replaced, an API server
// calls by the old segment and by the new one. Without a key there is no segment.
func WithPathKeys(keys func() [][]byte) Option {
	return func(r *Router) { r.keys = keys }
}

// Segment derives the segment of a registered path from a key. The key itself must
// not be in a path, because the webhook configurations are not confidential.
func Segment(key []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("postern webhook path"))
	return hex.EncodeToString(mac.Sum(nil)[:segmentBytes])
}

// servicePath removes the segment from the path of a request. It returns false for
// a path without an accepted segment. The time it takes does not depend on the
// path, so that a caller cannot find the segment by trying.
func (r *Router) servicePath(path string) (string, bool) {
	if r.keys == nil {
		return path, true
	}
	keys := r.keys()
	if len(keys) == 0 {
		return path, true
	}
	given, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	got, known := sha256.Sum256([]byte(given)), 0
	for _, key := range keys {
		want := sha256.Sum256([]byte(Segment(key)))
		known |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	return "/" + rest, known == 1 && strings.HasPrefix(path, "/")
}
