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
	go func() { served <- srv.Serve(conns) }()
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

// opener opens connections of a port without a network.
type opener struct {
	*Connections

	t *testing.T
}

func newOpener(t *testing.T, limits Limits) opener {
	t.Helper()
	return opener{NewConnections(&failing{}, limits, klog.FromContext(t.Context())), t}
}

// open opens n connections of a source, of which some are recognized, and returns them. For each one the port
// must close a connection of the source in loser, or none if loser is empty.
func (o opener) open(source string, n int, recognized bool, loser string) (opened []*connection) {
	o.t.Helper()
	for i := range n {
		conn := &connection{port: o.Connections, source: source}
		got := ""
		if closed := o.add(conn); closed != nil {
			got = closed.source
			if closed == conn {
				got = "itself"
			}
		}
		if got != loser {
			o.t.Fatalf("Connection %d of %s took the place of %q, want %q", i, source, got, loser)
		}
		if recognized {
			conn.recognize()
		}
		opened = append(opened, conn)
	}
	return opened
}

// has fails the test unless a source has n open connections.
func (o opener) has(source string, n int) {
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

// TestStrangersShareThePort fills a port from sources of which none is recognized. All of them must get the same
// number of connections, and a further one must always get in.
func TestStrangersShareThePort(t *testing.T) {
	o := newOpener(t, Limits{Total: 12})
	first := o.open("a", 12, false, "")
	second := o.open("b", 6, false, "a")
	if slices.ContainsFunc(first[:6], func(c *connection) bool { return !c.dropped }) || first[6].dropped {
		t.Error("Want the oldest connections closed")
	}
	enter(http.StateActive, second...)
	for _, source := range []string{"c", "d", "e", "f"} {
		for range 12 {
			o.add(&connection{port: o.Connections, source: source})
		}
	}
	for _, source := range []string{"a", "b", "c", "d", "e", "f"} {
		o.has(source, 2)
	}
	for i := range 20 { // More sources than the port has places.
		o.add(&connection{port: o.Connections, source: fmt.Sprint(i)})
	}
	o.has("19", 1)
	if open, _ := o.Count(); open != 12 || len(o.by) != 12 {
		t.Errorf("Got %d connections of %d sources, want 12 of 12", open, len(o.by))
	}
}

// TestRecognizedSourcesKeepTheirConnections fills a port with connections of API servers and of strangers.
func TestRecognizedSourcesKeepTheirConnections(t *testing.T) {
	o := newOpener(t, Limits{PerSource: 8, Total: 16})
	server := o.open("server", 8, true, "")
	o.open("server", 1, false, "itself")
	o.open("a", 8, false, "")
	o.open("b", 2, false, "a")
	o.open("second", 4, true, "a")
	o.open("second", 1, true, "a")
	o.open("second", 1, true, "b")
	o.has("second", 6)
	o.has("server", 8)
	if !server[0].many() {
		t.Error("Want the connections of a source with more than half of the limit closed after their answers")
	}
}

func TestFullPortIsNotMany(t *testing.T) {
	o := newOpener(t, Limits{PerSource: 8, Total: 16})
	server := o.open("server", 4, true, "")
	o.open("a", 8, false, "")
	o.open("b", 4, false, "")
	if server[0].many() {
		t.Error("Want the connections of a source with half of the limit kept on a full port")
	}
}

// TestAPIServersShareThePort fills a port with recognized connections. A further API server must get in, by an idle
// connection of the one that has most.
func TestAPIServersShareThePort(t *testing.T) {
	o := newOpener(t, Limits{PerSource: 8, Total: 16})
	first := o.open("first", 8, true, "")
	second := o.open("second", 8, true, "")
	enter(http.StateActive, first...)
	enter(http.StateActive, second[0])
	o.open("third", 2, true, "second")
	if second[0].dropped || !second[1].dropped {
		t.Error("Want the oldest idle connection closed")
	}
	enter(http.StateIdle, first[7])
	o.open("third", 1, true, "first")
	if !first[7].dropped {
		t.Error("Want the idle connection closed")
	}
	enter(http.StateActive, first...)
	enter(http.StateActive, second...)
	o.open("fourth", 1, false, "third")
	o.open("third", 1, false, "fourth")
	enter(http.StateActive, o.by["third"].open...)
	o.open("third", 1, false, "itself")
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
