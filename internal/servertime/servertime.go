// Package servertime tells the time of the API server. The API server decides by its own clock whether a certificate is
// valid, so a replica whose clock is wrong must not sign, renew or replace certificates by it.
package servertime

import (
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// tolerance is the largest difference between two clocks that counts as none. The Date of an answer has no fractions of a
	// second, and the answer takes some time.
	tolerance = time.Minute
	// maxDelay is the time after which an answer tells too little: its Date lies between the request and the answer.
	maxDelay = 10 * time.Second
)

// Clock tells the local time while that differs from the API server's by at most a minute, or while the time of the API
// server is not known. Else it tells the time of the API server. A change of the local clock between two answers has no
// effect, because the time since an answer is measured by the monotonic clock. Timers and tickers are those of the embedded
// clock. Create a Clock with New.
type Clock struct {
	clock.WithTicker

	elapsed func() time.Duration
	last    atomic.Pointer[answer]
	isWrong atomic.Bool
}

// answer is the time in an answer of the API server, and when the answer came, by the monotonic clock.
type answer struct {
	date time.Time
	at   time.Duration
}

var _ clock.WithTicker = (*Clock)(nil)

// New returns a Clock that does not know the time of the API server yet.
func New() *Clock {
	start := time.Now()
	return newClock(clock.RealClock{}, func() time.Duration { return time.Since(start) })
}

func newClock(local clock.WithTicker, elapsed func() time.Duration) *Clock {
	return &Clock{WithTicker: local, elapsed: elapsed}
}

// Now implements clock.PassiveClock.
func (c *Clock) Now() time.Time {
	now := c.WithTicker.Now()
	if offset := c.offset(now); !isSmall(offset) {
		return now.Add(offset)
	}
	return now
}

// Since implements clock.PassiveClock.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Offset returns the time of the API server minus the local time, or 0 if the former is not known.
func (c *Clock) Offset() time.Duration { return c.offset(c.WithTicker.Now()) }

func (c *Clock) offset(now time.Time) time.Duration {
	a := c.last.Load()
	if a == nil {
		return 0
	}
	return a.date.Add(c.elapsed() - a.at).Sub(now)
}

func isSmall(d time.Duration) bool { return d.Abs() <= tolerance }

// Transport returns a RoundTripper that learns the time from the answers of the API server. base is the address of the API
// server, which may have a path. Only answers of the API server itself count: it passes on those of aggregated API servers
// with their own Date.
func (c *Clock) Transport(base *url.URL) func(http.RoundTripper) http.RoundTripper {
	prefix := strings.TrimSuffix(base.Path, "/")
	return func(next http.RoundTripper) http.RoundTripper {
		return &transport{clock: c, next: next, core: prefix + "/api/v1/", version: prefix + "/version"}
	}
}

type transport struct {
	clock *Clock
	next  http.RoundTripper
	// core and version are the paths whose answers count.
	core, version string
}

// WrappedRoundTripper returns the RoundTripper below, for k8s.io/apimachinery/pkg/util/net.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := t.clock.elapsed()
	resp, err := t.next.RoundTrip(req)
	if err == nil && (req.URL.Path == t.version || strings.HasPrefix(req.URL.Path, t.core)) {
		if date, invalid := http.ParseTime(resp.Header.Get("Date")); invalid == nil {
			t.clock.learn(klog.FromContext(req.Context()), date, sent)
		}
	}
	return resp, err
}

// learn takes the time in an answer to a request that was sent at the given time, and logs when the local clock becomes wrong
// or right.
func (c *Clock) learn(logger klog.Logger, date time.Time, sent time.Duration) {
	at := c.elapsed()
	if at-sent > maxDelay {
		return
	}
	c.last.Store(&answer{date, at})
	offset := c.Offset()
	switch isWrong := !isSmall(offset); {
	case c.isWrong.Swap(isWrong) == isWrong:
	case isWrong:
		logger.Error(nil, "The clock of this machine is wrong, the time of the API server counts for certificates", "apiServerMinusLocal", offset.Round(time.Second))
	default:
		logger.Info("The clock of this machine is right again")
	}
}
