package secure

import (
	"errors"
	"math"
	"net"
	"net/http"
	"os"
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

// TestSharesOfSources fills a port from several sources. Each of them must leave connections for another one.
func TestSharesOfSources(t *testing.T) {
	c := NewConnections(&failing{}, Limits{PerSource: 60, Total: 100}, klog.FromContext(t.Context()))
	fill := func(source string) (n int) {
		for c.add(source) {
			n++
		}
		return n
	}
	for i, want := range []int{50, 25, 13, 6} {
		if got := fill(string(rune('a' + i))); got != want {
			t.Errorf("Source %d got %d connections, want %d", i, got, want)
		}
	}
	if !c.many("a") || c.many("new") {
		t.Error("Want the connections of the first source closed after their answers, and those of a new one kept")
	}
	for range 50 {
		c.remove("a")
	}
	if got := fill("a"); got < 25 {
		t.Errorf("Got %d connections, want what is free", got)
	}
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
