package router

import "time"

// Limits bound the resources that requests may use at a time. The zero value bounds
// only the time for reading a body.
type Limits struct {
	// Requests is how many requests are decided at a time. A quarter of them is
	// reserved for system requests. 0 means no limit.
	Requests int
	// Bytes is how much memory requests may use at a time: a quarter for their
	// bodies, envelopes and answers, the rest for their decoded objects and for what
	// is read to decide them. 0 means no limit.
	Bytes int64
	// ReadTimeout is how long reading the body of a request may take, and writing a
	// large answer. 0 means 5 seconds.
	ReadTimeout time.Duration
}

func (l Limits) readTimeout() time.Duration {
	if l.ReadTimeout == 0 {
		return defaultReadTimeout
	}
	return l.ReadTimeout
}

const (
	// defaultReadTimeout is far longer than an API server needs to send 25 MiB. It
	// bounds how long a slower sender holds its connection and the memory for its
	// body.
	defaultReadTimeout = 5 * time.Second

	// systemShare is the part of a limit that is reserved for system requests.
	systemShare = 4

	// bodyShare is the part of the bytes that is for bodies, envelopes and answers.
	bodyShare = 4

	// MinBytes is the smallest limit on bytes. With it, half of the bytes for
	// bodies holds a review of 8 MiB.
	MinBytes = 64 << 20

	// retryAfter is in seconds. A client based on client-go, such as an API server,
	// repeats a request that is answered 429 or 5xx with this header, even if it is
	// a POST.
	retryAfter        = "1"
	retryAfterSeconds = 1
)

// Option is an optional argument of New.
type Option func(*Router)

// WithLimits bounds the resources that requests may use at a time.
func WithLimits(l Limits) Option {
	return func(r *Router) { r.limits = l }
}

// WithNamespace sets Postern's own namespace. The requests of its service accounts have the room that is reserved for the
// control plane. Without it, there is no such namespace.
func WithNamespace(namespace string) Option {
	return func(r *Router) { r.namespace = namespace }
}

// WithTimeout sets the time-out with which the webhooks are registered. A request with less time that cannot be decided is
// denied, whatever the failure policy is. 0 means that every request has enough time.
func WithTimeout(d time.Duration) Option {
	return func(r *Router) { r.timeout = d }
}
