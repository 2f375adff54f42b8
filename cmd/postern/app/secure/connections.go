// Package secure serves the ports of a process. It bounds their connections and callers, and verifies client certificates.
package secure

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/sparselog"
)

// writeBufferBytes is how much of an answer the kernel holds for a client that does not
// read. By default it may hold 4 MiB for each connection, and a limit on the memory of the
// container counts that.
const writeBufferBytes = 128 << 10

const (
	// introduction is how long a new connection may take to carry a request that makes it recognized.
	introduction = time.Second
	// few is a number of connections that a kubelet or a Prometheus may have. A source with
	// fewer has no more than a source with one.
	few = 4
	// maxKnown and knownTTL bound the addresses of known sources without a connection. An API
	// server that had nothing to ask for a night is still known.
	maxKnown = 64
	knownTTL = 24 * time.Hour
)

// Connections is a listener that bounds the connections of each source address, and of all
// together. If the port is full, a new connection takes the place of another one, so that
// no number of sources can keep a further source out.
type Connections struct {
	net.Listener

	Limits

	logger             klog.Logger
	refusals, failures sparselog.Limiter
	// close closes the listener. Both the drain and the server call it.
	close func() error
	// known has the addresses of known sources.
	known *cache.LRUExpireCache

	mu    sync.Mutex
	open  int
	by    map[string]*source
	ended chan struct{} // Closed when a connection ends, and then replaced.
}

// source is an address with open connections.
type source struct {
	// open are the connections, the oldest first.
	open []*connection
	// recognized is how many of them are recognized.
	recognized int
	// known is for a source that has had a recognized connection. Any pod may be another one.
	known bool
}

// NewConnections returns a listener that accepts the connections of l within the limits.
func NewConnections(l net.Listener, limits Limits, logger klog.Logger) *Connections {
	return &Connections{
		Listener: l, Limits: limits, logger: logger, close: sync.OnceValue(l.Close),
		known: cache.NewLRUExpireCache(maxKnown), by: map[string]*source{}, ended: make(chan struct{}),
	}
}

// Close implements net.Listener. Each further call returns the same error.
func (c *Connections) Close() error { return c.close() }

// Accept implements net.Listener. If there is no place for a connection, either that
// connection or another one is closed. An error does not end the server, unless the
// listener is closed.
func (c *Connections) Accept() (net.Conn, error) {
	for {
		accepted, err := c.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		if err != nil {
			if suppressed, ok := c.failures.Allow(); ok {
				c.logger.Error(err, "Could not accept a connection", "suppressed", suppressed)
			}
			return nil, passing{err}
		}
		conn := &connection{Conn: accepted, port: c, source: HostOf(accepted.RemoteAddr().String()), since: time.Now()}
		closed := c.add(conn)
		if closed != nil {
			if suppressed, ok := c.refusals.Allow(); ok {
				c.logger.Info("Closed a connection: there are too many", "source", closed.source, "new", conn.source, "limit", c.PerSource, "total", c.Total, "suppressed", suppressed)
			}
		}
		switch closed {
		case nil:
		case conn:
			_ = accepted.Close()
			continue
		default:
			closed.abort()
		}
		if tcp, ok := accepted.(*net.TCPConn); ok {
			// A failure leaves the default, which is larger.
			_ = tcp.SetWriteBuffer(writeBufferBytes)
		}
		return conn, nil
	}
}

// passing is an error of an attempt to accept a connection, such as EMFILE. net/http
// accepts again after a pause.
type passing struct{ error }

// Temporary implements net.Error.
func (passing) Temporary() bool { return true }

// Timeout implements net.Error.
func (passing) Timeout() bool { return false }

// add counts a new connection as open. If there are too many, it returns the one to close:
// another one, whose place the new connection has then, or the new one.
func (c *Connections) add(conn *connection) (closed *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.by[conn.source]
	if s == nil {
		_, known := c.known.Get(conn.source)
		s = &source{known: known}
		c.by[conn.source] = s
	}
	if c.PerSource > 0 && len(s.open) >= c.PerSource {
		if closed = s.stranger(conn.since); closed == nil {
			conn.dropped = true
			return conn
		}
		c.drop(closed)
		c.by[conn.source] = s
	}
	c.open++
	s.open = append(s.open, conn)
	if c.Total > 0 && c.open > c.Total {
		closed = c.leastNeeded(conn)
		c.drop(closed)
	}
	return closed
}

// rank orders the connections of a full port. Those with the lowest rank are closed first.
type rank int

const (
	ofStranger    rank = iota // Of a source that is not known, and not recognized in time.
	notRecognized             // Of a known source, and not recognized in time: strangers may share its address.
	tooNew                    // Of a source that is not known, but may be an API server's.
	unused                    // Recognized and idle. A request that arrives now is lost.
	needed                    // All others.
)

// leastNeeded returns the connection to close for a new one: of those with the lowest rank
// the oldest one of the source that has most connections. Without any, it is the new one.
func (c *Connections) leastNeeded(added *connection) *connection {
	var most *source
	least, lowest := added, needed
	for _, s := range c.by {
		candidate, r := s.leastNeeded(added.since)
		if r == needed || candidate == added || r == unused && len(s.open) < len(c.by[added.source].open) {
			continue
		}
		if r < lowest || r == lowest && s.hasMore(most) {
			most, least, lowest = s, candidate, r
		}
	}
	return least
}

// leastNeeded returns the oldest one of the connections that have the lowest rank.
func (s *source) leastNeeded(now time.Time) (*connection, rank) {
	if !s.known {
		if now.Sub(s.open[0].since) > introduction {
			return s.open[0], ofStranger
		}
		return s.open[0], tooNew
	}
	if conn := s.stranger(now); conn != nil {
		return conn, notRecognized
	}
	for _, conn := range s.open {
		if conn.recognized.Load() && conn.state == http.StateIdle {
			return conn, unused
		}
	}
	return nil, needed
}

// stranger returns the oldest connection that was not recognized in time, or nil.
func (s *source) stranger(now time.Time) *connection {
	for _, conn := range s.open {
		if now.Sub(conn.since) > introduction && !conn.recognized.Load() {
			return conn
		}
	}
	return nil
}

// hasMore reports whether the source has more connections than other, or an older one.
func (s *source) hasMore(other *source) bool {
	if has, more := max(few, len(s.open)), max(few, len(other.open)); has != more {
		return has > more
	}
	return s.open[0].since.Before(other.open[0].since)
}

// drop no longer counts a connection as open. It is called once for each connection.
func (c *Connections) drop(conn *connection) {
	s := c.by[conn.source]
	i := slices.Index(s.open, conn)
	s.open = slices.Delete(s.open, i, i+1)
	conn.dropped = true
	if conn.recognized.Load() {
		s.recognized--
	}
	if len(s.open) == 0 {
		delete(c.by, conn.source)
		if s.known {
			c.known.Add(conn.source, true, knownTTL)
		}
	}
	c.open--
	close(c.ended)
	c.ended = make(chan struct{})
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

// connection is a connection that is counted as open until it is closed. The mutex of its
// port protects the fields of the last part.
type connection struct {
	net.Conn

	port   *Connections
	source string
	since  time.Time
	// cancel ends the context of its requests.
	cancel context.CancelFunc
	// recognized is for a connection that has carried a request that no stranger can make.
	// It is written with the mutex.
	recognized atomic.Bool

	state   http.ConnState
	dropped bool
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.port.mu.Lock()
	if !c.dropped {
		c.port.drop(c)
	}
	c.port.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
	return c.Conn.Close()
}

// abort closes a connection for a new one. If it is not recognized, what its client has not
// read is gone at once: the kernel would keep it, and new connections could make it keep any number.
func (c *connection) abort() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok && !c.recognized.Load() {
		// A failure leaves the memory to the time-out of the kernel.
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// enter records what state the server says the connection is in.
func (c *connection) enter(state http.ConnState) {
	if c == nil {
		return
	}
	c.port.mu.Lock()
	defer c.port.mu.Unlock()
	c.state = state
}

// many reports whether the source of the connection has more than half of the connections
// that a source may have. Connections that are not recognized do not count for one that is.
func (c *connection) many() bool {
	if c == nil {
		return false
	}
	c.port.mu.Lock()
	defer c.port.mu.Unlock()
	limit, s := c.port.ofOne(), c.port.by[c.source]
	if limit == 0 || c.dropped {
		return false
	}
	if c.recognized.Load() {
		return s.recognized > limit/2
	}
	return len(s.open) > limit/2
}

// recognize records that the connection has carried a request that no stranger can make.
func (c *connection) recognize() {
	c.port.mu.Lock()
	defer c.port.mu.Unlock()
	if c.dropped || c.recognized.Swap(true) {
		return
	}
	s := c.port.by[c.source]
	s.recognized++
	s.known = true
}

// connectionKey is the key of the connection in the context of its requests.
type connectionKey struct{}

// follow makes a server tell its connections what happens to them, and makes it close a
// connection after its next answer if its source has many connections. Idle connections
// therefore do not accumulate. Closing an idle connection at any other time could lose a
// request that the client has just sent.
func follow(srv *http.Server) {
	srv.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		c := connectionIn(conn)
		if c != nil {
			// The server itself does not see that a connection ends while a body is unread.
			ctx, c.cancel = context.WithCancel(ctx)
		}
		return context.WithValue(ctx, connectionKey{}, c)
	}
	srv.ConnState = func(conn net.Conn, state http.ConnState) { connectionIn(conn).enter(state) }
	next := srv.Handler
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if connectionOf(req).many() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, req)
	})
}

// Recognizing recognizes the sources of requests for paths that no stranger knows. On a
// full port, connections of other sources are closed before theirs.
func Recognizing(knows func(path string) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if c := connectionOf(req); c != nil && !c.recognized.Load() && knows(req.URL.Path) {
			c.recognize()
		}
		next.ServeHTTP(w, req)
	})
}

// connectionOf returns the connection of a request, or nil if Connections did not accept it.
func connectionOf(req *http.Request) *connection {
	c, _ := req.Context().Value(connectionKey{}).(*connection)
	return c
}

// connectionIn returns the connection in one of an HTTP server, or nil if Connections did not accept it.
func connectionIn(conn net.Conn) *connection {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, _ := conn.(*connection)
	return c
}

// HostOf returns the host of an address, or the address itself if it has no port.
func HostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
