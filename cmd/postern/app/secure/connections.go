// Package secure serves the ports of a process. It bounds their connections and callers, and verifies client certificates.
package secure

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/sparselog"
)

// writeBufferBytes is how much of an answer the kernel holds for a client that does not
// read. By default it may hold 4 MiB for each connection, and a limit on the memory of the
// container counts that.
const writeBufferBytes = 128 << 10

// Connections is a listener that counts the connections it accepted. It bounds the
// number of connections of each source address, and of all together.
type Connections struct {
	net.Listener

	Limits

	logger             klog.Logger
	refusals, failures sparselog.Limiter
	// close closes the listener. Both the drain and the server call it.
	close func() error

	mu    sync.Mutex
	open  int
	by    map[string]int
	ended chan struct{} // Closed when a connection ends, and then replaced.
}

// NewConnections returns a listener that accepts the connections of l within the limits.
func NewConnections(l net.Listener, limits Limits, logger klog.Logger) *Connections {
	return &Connections{
		Listener: l, Limits: limits, logger: logger, by: map[string]int{}, ended: make(chan struct{}),
		close: sync.OnceValue(l.Close),
	}
}

// Close implements net.Listener. Each further call returns the same error.
func (c *Connections) Close() error { return c.close() }

// Accept implements net.Listener. A connection beyond the bounds is closed at once. An
// error does not end the server, unless the listener is closed.
func (c *Connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		if err != nil {
			if suppressed, ok := c.failures.Allow(); ok {
				c.logger.Error(err, "Could not accept a connection", "suppressed", suppressed)
			}
			return nil, passing{err}
		}
		source := HostOf(conn.RemoteAddr().String())
		if c.add(source) {
			if tcp, ok := conn.(*net.TCPConn); ok {
				// A failure leaves the default, which is larger.
				_ = tcp.SetWriteBuffer(writeBufferBytes)
			}
			return &counted{Conn: conn, done: sync.OnceFunc(func() { c.remove(source) })}, nil
		}
		_ = conn.Close()
		if suppressed, ok := c.refusals.Allow(); ok {
			c.logger.Info("Closed a new connection: its source has too many", "source", source, "limit", c.PerSource, "total", c.Total, "suppressed", suppressed)
		}
	}
}

// passing is an error of an attempt to accept a connection, such as EMFILE. net/http
// accepts again after a pause.
type passing struct{ error }

// Temporary implements net.Error.
func (passing) Temporary() bool { return true }

// Timeout implements net.Error.
func (passing) Timeout() bool { return false }

func (c *Connections) add(source string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[source] >= c.share() {
		return false
	}
	c.open++
	c.by[source]++
	return true
}

func (c *Connections) remove(source string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.by[source]--; c.by[source] == 0 {
		delete(c.by, source)
	}
	close(c.ended)
	c.ended = make(chan struct{})
}

// share returns how many connections a source may have: no more than are left for all
// others. Many sources that take what they can therefore have equal shares, and leave a
// share for another source.
func (c *Connections) share() int {
	share := math.MaxInt
	if c.Total > 0 {
		share = c.Total - c.open
	}
	if c.PerSource > 0 {
		share = min(share, c.PerSource)
	}
	return share
}

// many reports whether a source has more than half of the connections that it may have.
func (c *Connections) many(source string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[source] > c.share()/2
}

// Count returns how many connections are open, and a channel that is closed when one of them ends.
func (c *Connections) Count() (open int, ended <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open, c.ended
}

// AwaitNone returns when no connection is open any more, or when the time is over.
func (c *Connections) AwaitNone(ctx context.Context, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		open, ended := c.Count()
		if open == 0 {
			return
		}
		select {
		case <-ended:
		case <-timer.C:
			klog.FromContext(ctx).Info("Closing connections that their clients left open", "connections", open)
			return
		case <-ctx.Done():
			return
		}
	}
}

// Prune closes a connection after its next answer if its source has many connections.
// Idle connections therefore do not accumulate. Closing an idle connection at any
// other time could lose a request that the client has just sent.
func (c *Connections) Prune(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if c.many(HostOf(req.RemoteAddr)) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, req)
	})
}

// counted is a connection that is counted as open until it is closed.
type counted struct {
	net.Conn

	done func()
}

func (c *counted) Close() error {
	c.done()
	return c.Conn.Close()
}

// HostOf returns the host of an address, or the address itself if it has no port.
func HostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
