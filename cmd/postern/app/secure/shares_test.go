package secure

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

// failing is a listener that fails before it accepts.
type failing struct {
	net.Listener

	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
	}
	return f.Listener.Accept()
}

// TestAcceptErrorsPass checks that a server survives errors of its listener.
func TestAcceptErrorsPass(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns := NewConnections(&failing{l, []error{syscall.EMFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EPERM}}, Limits{}, klog.FromContext(t.Context()))
	srv := NewServer(t.Context(), http.NotFoundHandler(), HealthTimeouts)
	served := make(chan error, 1)
	go func() { served <- Serve(srv, conns) }()
	resp, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	srv.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Got %v, want the server to end when it is closed", err)
	}
}

// opener opens connections of a port without a network. Its clock advances by a millisecond for each of them.
type opener struct {
	*Connections

	t   *testing.T
	now time.Time
}

func newOpener(t *testing.T, limits Limits) *opener {
	t.Helper()
	return &opener{NewConnections(&failing{}, limits, klog.FromContext(t.Context())), t, time.Now()}
}

// open opens n connections of a source, and returns them. For each one the port must close a connection of the source in
// loser, itself, or none if loser is empty.
func (o *opener) open(source string, n int, loser string) (opened []*connection) {
	o.t.Helper()
	for i := range n {
		o.now = o.now.Add(time.Millisecond)
		conn := &connection{port: o.Connections, source: source, since: o.now}
		got := ""
		if closed := o.add(conn); closed != nil {
			got = closed.source
			if closed == conn {
				got = "itself"
			}
		}
		if loser != "any" && got != loser {
			o.t.Fatalf("Connection %d of %s took the place of %q, want %q", i, source, got, loser)
		}
		opened = append(opened, conn)
	}
	return opened
}

// call opens connections, and sends a request on each.
func (o *opener) call(source string, n int, loser string) (opened []*connection) {
	o.t.Helper()
	for range n {
		conn := o.open(source, 1, loser)[0]
		conn.enter(http.StateActive)
		conn.recognize()
		conn.enter(http.StateIdle)
		opened = append(opened, conn)
	}
	return opened
}

// later lets the time pass in which a connection may introduce itself.
func (o *opener) later() { o.now = o.now.Add(2 * introduction) }

// has fails the test unless a source has n open connections.
func (o *opener) has(source string, n int) {
	o.t.Helper()
	got := 0
	if s := o.by[source]; s != nil {
		got = len(s.open)
	}
	if got != n {
		o.t.Errorf("%s has %d connections, want %d", source, got, n)
	}
}

func enter(state http.ConnState, conns ...*connection) {
	for _, conn := range conns {
		conn.enter(state)
	}
}

// TestStrangersShareThePort fills a port from sources of which none is known. All of them must get the same number of
// connections, and a further one must always get in.
func TestStrangersShareThePort(t *testing.T) {
	o := newOpener(t, Limits{Total: 36})
	first := o.open("a", 36, "")
	o.open("b", 18, "a")
	if slices.ContainsFunc(first[:18], func(c *connection) bool { return !c.dropped }) || first[18].dropped {
		t.Error("Want the oldest connections closed")
	}
	for _, source := range []string{"c", "d", "e", "f"} {
		o.open(source, 36, "any")
	}
	for _, source := range []string{"a", "b", "c", "d", "e", "f"} {
		o.has(source, 6)
	}
	probes := append(o.open("kubelet", 1, "a"), o.open("kubelet", 1, "b")...)
	for i := range 34 { // Further sources, until each connection is of another one.
		o.open(fmt.Sprint(i), 1, "any")
	}
	if probes[0].dropped || probes[1].dropped {
		t.Error("Want two probes kept while older connections are there")
	}
	o.open("further", 1, "kubelet")
	o.later()
	o.open("further", 36, "any")
	o.has("further", 36)
	if open, _ := o.Count(); open != 36 || len(o.by) != 1 {
		t.Errorf("Got %d connections of %d sources, want 36 of one", open, len(o.by))
	}
}

// TestKnownSourcesKeepTheirConnections fills a port with connections of API servers and of strangers.
func TestKnownSourcesKeepTheirConnections(t *testing.T) {
	o := newOpener(t, Limits{PerSource: 16, Total: 32})
	server := o.call("server", 16, "")
	o.open("server", 1, "itself")
	o.open("a", 16, "")
	o.open("b", 4, "a")
	o.open("server 2", 4, "a")
	o.later()
	// It is not known yet, and all of its connections are older than its first request.
	o.open("server 3", 8, "a")
	o.open("server 3", 4, "b")
	o.has("server", 16)
	if !server[0].many() {
		t.Error("Want the connections of a source with more than half of the limit closed after their answers")
	}
}

// TestSourcesStayKnown closes all connections of an API server. Those that it opens later are not recognized yet.
func TestSourcesStayKnown(t *testing.T) {
	o := newOpener(t, Limits{Total: 16})
	for _, conn := range o.call("server", 8, "") {
		conn.port.mu.Lock()
		conn.port.drop(conn)
		conn.port.mu.Unlock()
	}
	o.has("server", 0)
	o.open("a", 10, "")
	o.open("server", 6, "")
	o.open("server", 10, "a")
	// They are not recognized yet either, so they cannot keep the whole port.
	o.open("a", 1, "server")
	o.open("a", 1, "a")
	o.open("server", 1, "a")
}

// TestStrangersWithTheAddressOfAnAPIServer fills a port from one source. What is not recognized must go.
func TestStrangersWithTheAddressOfAnAPIServer(t *testing.T) {
	for _, limits := range []Limits{{PerSource: 8, Total: 16}, {Total: 8}, {PerSource: 16, Total: 8}} {
		o := newOpener(t, limits)
		server := o.call("node", 4, "")
		strangers := o.open("node", 4, "")
		enter(http.StateActive, strangers...)
		o.later()
		o.open("node", 4, "node")
		if slices.ContainsFunc(server, func(c *connection) bool { return c.dropped || c.many() }) || slices.ContainsFunc(strangers, func(c *connection) bool { return !c.dropped }) {
			t.Errorf("%v: want the connections of strangers closed, and those of the API server kept", limits)
		}
	}
}

func TestFullPortIsNotMany(t *testing.T) {
	o := newOpener(t, Limits{PerSource: 8, Total: 16})
	server := o.call("server", 4, "")
	o.open("a", 8, "")
	o.open("b", 4, "")
	if server[0].many() {
		t.Error("Want the connections of a source with half of the limit kept on a full port")
	}
}

// TestAPIServersShareThePort fills a port with recognized connections. A further API server must get in, by an idle
// connection of the one that has most.
func TestAPIServersShareThePort(t *testing.T) {
	o := newOpener(t, Limits{PerSource: 8, Total: 16})
	first := o.call("first", 8, "")
	second := o.call("second", 8, "")
	enter(http.StateActive, first...)
	enter(http.StateActive, second[0])
	third := o.call("third", 2, "second")
	if second[0].dropped || !second[1].dropped {
		t.Error("Want the oldest idle connection closed")
	}
	enter(http.StateIdle, first[7])
	o.open("third", 1, "first")
	if !first[7].dropped {
		t.Error("Want the idle connection closed")
	}
	enter(http.StateActive, slices.Concat(first, second, third)...)
	o.open("third", 1, "itself")
	enter(http.StateIdle, third[0])
	o.open("third", 1, "third")
	if !third[0].dropped {
		t.Error("Want an idle connection of the same source closed rather than a new one")
	}
	o.open("fourth", 1, "third")
	o.open("fourth", 1, "fourth")
	o.open("first", 1, "fourth")
}

func TestConnectionLimits(t *testing.T) {
	for descriptors, want := range map[uint64][2]Limits{
		1 << 20:        {{1000, 2000}, {0, 256}},
		math.MaxUint64: {{1000, 2000}, {0, 256}},
		1024:           {{1000, 672}, {0, 224}},
		64:             {{1000, 16}, {0, 16}},
	} {
		if secure, health := LimitsFor(descriptors, 1000); secure != want[0] || health != want[1] {
			t.Errorf("%d descriptors: got %v and %v, want %v", descriptors, secure, health, want)
		}
	}
	if secure, _ := LimitsFor(1024, 0); secure.Total != 672 {
		t.Errorf("Got %v without a limit per source, want descriptors kept back", secure)
	}
}

// TestClosedConnectionEndsItsRequest closes a connection for a new one while its handler waits. The server does not see that,
// because the body of the request has not been read.
func TestClosedConnectionEndsItsRequest(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	began, ended := make(chan struct{}), make(chan struct{})
	srv := NewServer(t.Context(), http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		close(began)
		<-req.Context().Done()
		close(ended)
	}), HealthTimeouts)
	go func() { _ = Serve(srv, NewConnections(l, Limits{Total: 1}, klog.FromContext(t.Context()))) }()
	defer srv.Close()
	for i, request := range []string{"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n", ""} {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+i))}}
		conn, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		<-began
	}
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("The handler still waits, want the context of its request cancelled")
	}
}
