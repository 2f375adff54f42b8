// Package secure serves the ports of a process. It bounds their connections and callers, and verifies client certificates.
package secure

import (
	"context"
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
	// few is a number of connections that a kubelet or a Prometheus may have. Sources with no
	// more than these count as equal.
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

	logger                       klog.Logger
	refusals, failures, excesses *sparselog.Limiter
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
	// known is whether one was recognized, now or during knownTTL. A source that is not known
	// may be any pod.
	known bool
}

// NewConnections returns a listener that accepts the connections of l within the limits.
func NewConnections(l net.Listener, limits Limits, logger klog.Logger) *Connections {
	return &Connections{
		Listener: l, Limits: limits, logger: logger, close: sync.OnceValue(l.Close),
		known: cache.NewLRUExpireCache(maxKnown), by: map[string]*source{}, ended: make(chan struct{}),
		refusals: sparselog.New(1), failures: sparselog.New(1), excesses: sparselog.New(1),
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
		var r rank
		if closed, r = s.leastNeeded(conn); r > ofSharer {
			conn.dropped = true
			return conn
		}
	}
	c.open++
	s.open = append(s.open, conn)
	if closed == nil && c.Total > 0 && c.open > c.Total {
		closed = c.leastNeeded(conn)
	}
	if closed != nil {
		c.drop(closed)
	}
	return closed
}

// rank orders the connections of a full port. Those with the lowest rank are closed first.
type rank int

const (
	ofStranger rank = iota // Not recognized in time, and of a source that is not known.
	ofSharer               // Not recognized in time, and of a known source, whose address a stranger may share.
	tooNew                 // Not recognized yet, and of a source that is not known. It may be an API server.
	newOfKnown             // Not recognized yet, and of a known source.
	unused                 // Recognized and idle. A request that arrives now is lost.
	needed                 // Recognized, with a request in progress.
)

// leastNeeded returns the connection to close for a new one: of those with the lowest rank
// the oldest one of the source that has most connections. Without any, it is the new one.
// A known source loses what it may need only to a source that does not have more.
func (c *Connections) leastNeeded(added *connection) *connection {
	var most *source
	least, lowest := added, needed
	for _, s := range c.by {
		candidate, r := s.leastNeeded(added)
		if r == needed || candidate == added || r >= newOfKnown && len(s.open) < len(c.by[added.source].open) {
			continue
		}
		if r < lowest || r == lowest && s.hasMore(most) {
			most, least, lowest = s, candidate, r
		}
	}
	return least
}

// leastNeeded returns the oldest one of the connections that have the lowest rank. A new
// connection does not take the place of another new one of the same known source.
func (s *source) leastNeeded(added *connection) (*connection, rank) {
	for _, conn := range s.open {
		late := added.since.Sub(conn.since) > introduction
		switch {
		case conn.recognized.Load():
		case late && s.known:
			return conn, ofSharer
		case late:
			return conn, ofStranger
		case !s.known:
			return conn, tooNew
		case conn.source != added.source:
			return conn, newOfKnown
		}
	}
	for _, conn := range s.open {
		if conn.state == http.StateIdle {
			return conn, unused
		}
	}
	return nil, needed
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

// report logs that a connection is closed because of what its client has sent.
func (c *Connections) report(conn *connection, err error) {
	if suppressed, ok := c.excesses.Allow(); ok {
		c.logger.Info("Closing a connection", "source", conn.source, "err", err, "suppressed", suppressed)
	}
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

	// most is how many bytes the client may send for a handshake or a request while the connection is not recognized, or 0 for no
	// bound. sent is how many it has sent. Both are for the goroutine that reads, or that serves when nothing is read.
	most, sent int

	state   http.ConnState
	dropped bool
}

// Read implements net.Conn.
func (c *connection) Read(p []byte) (int, error) {
	if c.most == 0 || c.recognized.Load() {
		return c.Conn.Read(p)
	}
	if c.sent >= c.most {
		c.port.report(c, errManyBytes)
		return 0, errManyBytes
	}
	n, err := c.Conn.Read(p[:min(len(p), c.most-c.sent)])
	c.sent += n
	return n, err
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
	c.port.mu.Lock()
	defer c.port.mu.Unlock()
	c.state = state
	if state == http.StateIdle {
		c.sent = 0
	}
}

// many reports whether the source of the connection has more than half of the connections
// that a source may have. Connections that are not recognized do not count for one that is.
func (c *connection) many() bool {
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

// follow makes a server tell its connections what happens to them.
func follow(srv *http.Server) {
	srv.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		c := connectionIn(conn)
		if c == nil {
			return ctx
		}
		// The server itself does not see that a connection ends while a body is unread.
		ctx, c.cancel = context.WithCancel(ctx)
		return context.WithValue(ctx, connectionKey{}, c)
	}
	srv.ConnState = func(conn net.Conn, state http.ConnState) {
		if c := connectionIn(conn); c != nil {
			c.enter(state)
		}
	}
}

// Callers serves API servers. It recognizes connections by requests for paths that no
// stranger knows, which keeps them open on a full port. It closes a connection after its
// answer if the source has many. Idle connections therefore do not accumulate. Closing
// one at any other time could lose a request that the client has just sent.
func Callers(knows func(path string) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if c, ok := req.Context().Value(connectionKey{}).(*connection); ok {
			if !c.recognized.Load() && knows(req.URL.Path) {
				c.recognize()
			}
			if c.many() {
				w.Header().Set("Connection", "close")
			}
		}
		next.ServeHTTP(w, req)
	})
}

// connectionIn returns the connection in one of an HTTP server, or nil if Connections did not accept it.
func connectionIn(conn net.Conn) *connection {
	if b, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = b.NetConn()
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
