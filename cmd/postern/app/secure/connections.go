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

	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/sparselog"
)

// writeBufferBytes is how much of an answer the kernel holds for a client that does not
// read. By default it may hold 4 MiB for each connection, and a limit on the memory of the
// container counts that.
const writeBufferBytes = 128 << 10

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

	mu       sync.Mutex
	open     int
	accepted uint64
	by       map[string]*source
	ended    chan struct{} // Closed when a connection ends, and then replaced.
}

// source is an address with open connections.
type source struct {
	// open are the connections, the oldest first.
	open []*connection
	// recognized is the number of connections that are recognized.
	recognized int
}

// NewConnections returns a listener that accepts the connections of l within the limits.
func NewConnections(l net.Listener, limits Limits, logger klog.Logger) *Connections {
	return &Connections{
		Listener: l, Limits: limits, logger: logger, by: map[string]*source{}, ended: make(chan struct{}),
		close: sync.OnceValue(l.Close),
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
		conn := &connection{Conn: accepted, port: c, source: HostOf(accepted.RemoteAddr().String())}
		closed := c.add(conn)
		if closed != nil {
			_ = closed.Conn.Close()
			if suppressed, ok := c.refusals.Allow(); ok {
				c.logger.Info("Closed a connection: there are too many", "source", closed.source, "new", conn.source, "limit", c.PerSource, "total", c.Total, "suppressed", suppressed)
			}
		}
		if closed == conn {
			continue
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
		s = &source{}
		c.by[conn.source] = s
	}
	if c.PerSource > 0 && len(s.open) >= c.PerSource {
		return conn
	}
	c.accepted++
	conn.number = c.accepted
	c.open++
	s.open = append(s.open, conn)
	if c.Total > 0 && c.open > c.Total {
		closed = c.leastNeeded(conn)
		c.drop(closed)
	}
	return closed
}

// leastNeeded returns the connection to close for a new one. It is the oldest one of the
// source that has most. Sources without a recognized connection come first: any pod may be
// such a source, whereas a closed connection of an API server can be a lost request. A
// recognized source loses only idle connections, and none to a source that has more. If
// there is no such connection, it is the new one.
func (c *Connections) leastNeeded(added *connection) *connection {
	var most *source
	least := added
	for _, s := range c.by {
		candidate := s.open[0]
		if s.recognized > 0 {
			i := slices.IndexFunc(s.open, (*connection).idle)
			if i < 0 || len(s.open) < len(c.by[added.source].open) {
				continue
			}
			candidate = s.open[i]
		}
		if candidate != added && (most == nil || s.before(most)) {
			most, least = s, candidate
		}
	}
	return least
}

// before reports whether s loses a connection rather than other.
func (s *source) before(other *source) bool {
	switch {
	case (s.recognized > 0) != (other.recognized > 0):
		return other.recognized > 0
	case len(s.open) != len(other.open):
		return len(s.open) > len(other.open)
	}
	return s.open[0].number < other.open[0].number
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
// port protects the fields below it.
type connection struct {
	net.Conn

	port   *Connections
	source string

	number     uint64
	state      http.ConnState
	recognized atomic.Bool // May be read without the mutex.
	dropped    bool
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.port.mu.Lock()
	if !c.dropped {
		c.port.drop(c)
	}
	c.port.mu.Unlock()
	return c.Conn.Close()
}

// idle reports whether no request is in progress on the connection.
func (c *connection) idle() bool { return c.state != http.StateActive }

// enter records what state the server says the connection is in.
func (c *connection) enter(state http.ConnState) {
	if c == nil {
		return
	}
	c.port.mu.Lock()
	defer c.port.mu.Unlock()
	c.state = state
}

// many reports whether the source of the connection has more than half of the connections that a source may have.
func (c *connection) many() bool {
	if c == nil {
		return false
	}
	c.port.mu.Lock()
	defer c.port.mu.Unlock()
	limit, s := c.port.ofOne(), c.port.by[c.source]
	return limit > 0 && s != nil && len(s.open) > limit/2
}

// recognize records that the connection has carried a request that no stranger can make.
func (c *connection) recognize() {
	c.port.mu.Lock()
	defer c.port.mu.Unlock()
	if !c.dropped && !c.recognized.Swap(true) {
		c.port.by[c.source].recognized++
	}
}

// connectionKey is the key of the connection in the context of its requests.
type connectionKey struct{}

// follow makes a server tell its connections what happens to them, and makes it close a
// connection after its next answer if its source has many connections. Idle connections
// therefore do not accumulate. Closing an idle connection at any other time could lose a
// request that the client has just sent.
func follow(srv *http.Server) {
	srv.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, connectionIn(conn))
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
