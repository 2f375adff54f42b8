package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/cmd/postern/app/secure"
)

// serveOn serves h on loopback, and counts connections.
func serveOn(t *testing.T, limits secure.Limits, h http.Handler) (*http.Server, *secure.Connections) {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns := secure.NewConnections(l, limits, klog.FromContext(t.Context()))
	srv := secure.NewServer(t.Context(), h, secure.PortTimeouts)
	go func() { _ = secure.Serve(srv, conns) }()
	t.Cleanup(func() { srv.Close() })
	return srv, conns
}

// far is a connection with a delay in both directions.
type far struct {
	net.Conn

	there, back chan parcel
	rest        []byte
	closed      chan struct{}
	close       func() error
}

type parcel struct {
	data []byte
	at   time.Time
	err  error
}

const distance = 10 * time.Millisecond

func newFar(conn net.Conn) *far {
	f := &far{Conn: conn, there: make(chan parcel, 100), back: make(chan parcel, 100), closed: make(chan struct{})}
	f.close = sync.OnceValue(func() error { close(f.closed); return nil })
	go func() {
		defer conn.Close()
		for {
			select {
			case p := <-f.there:
				time.Sleep(time.Until(p.at))
				if _, err := conn.Write(p.data); err != nil {
					return
				}
			case <-f.closed:
				time.Sleep(distance)
				return
			}
		}
	}()
	go func() {
		for {
			buf := make([]byte, 4096)
			n, err := conn.Read(buf)
			select {
			case f.back <- parcel{buf[:n], time.Now().Add(distance), err}:
			case <-f.closed:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return f
}

func (f *far) Write(p []byte) (int, error) {
	select {
	case <-f.closed:
		return 0, net.ErrClosed
	case f.there <- parcel{data: bytes.Clone(p), at: time.Now().Add(distance)}:
		return len(p), nil
	}
}

func (f *far) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		select {
		case <-f.closed:
			return 0, net.ErrClosed
		case b := <-f.back:
			time.Sleep(time.Until(b.at))
			if f.rest = b.data; len(b.data) == 0 {
				return 0, b.err
			}
		}
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

func (f *far) Close() error { return f.close() }

// errElsewhere is the error of requests that need a new connection after the cluster has removed the replica
// from the endpoints. Another replica would get these requests.
var errElsewhere = errors.New("another replica has it")

// drainUnderLoad runs clients that send requests at intervals over a slow network, until some time after the
// replica begins to shut down. They close idle connections like an API server, but sooner. It returns the
// numbers of answered and lost requests.
func drainUnderLoad(t *testing.T, wait time.Duration) (answered, lost int64) {
	t.Helper()
	h := &health{}
	o := &options{shutdownDelay: 20 * time.Millisecond, shutdownConnections: wait}
	srv, conns := serveOn(t, secure.Limits{}, o.secureHandler(h, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		_, _ = io.WriteString(w, "done")
	})))
	transport := &http.Transport{MaxIdleConnsPerHost: 200, IdleConnTimeout: 900 * time.Millisecond, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if h.draining.Load() {
			return nil, errElsewhere
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return newFar(conn), nil
	}}
	defer transport.CloseIdleConnections()
	var good, bad atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range 100 {
		clients.Go(func() {
			for pause := time.Duration(100 + 8*i); ctx.Err() == nil; time.Sleep(pause * time.Millisecond) {
				resp, err := (&http.Client{Transport: transport}).Post("http://"+conns.Addr().String(), "application/json", io.MultiReader(bytes.NewReader([]byte("{}"))))
				switch {
				case errors.Is(err, errElsewhere):
				case err != nil:
					bad.Add(1)
				default:
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					good.Add(1)
				}
			}
		})
	}
	time.Sleep(1200 * time.Millisecond)
	if err := o.drain(t.Context(), h, conns, srv); err != nil {
		t.Errorf("Draining: %v", err)
	}
	time.Sleep(100 * time.Millisecond)
	stop()
	clients.Wait()
	return good.Load(), bad.Load()
}

// TestNoRequestIsLostInADrain compares two ways to drain a replica: closing connections at once, which loses
// requests, and waiting until the clients close them, which must lose none.
func TestNoRequestIsLostInADrain(t *testing.T) {
	for range 3 {
		answered, lost := drainUnderLoad(t, 0)
		t.Logf("Closed at once: %d answered, %d lost", answered, lost)
	}
	for range 3 {
		start := time.Now()
		answered, lost := drainUnderLoad(t, 10*time.Second)
		t.Logf("Closed by the clients: %d answered, %d lost", answered, lost)
		if lost > 0 || answered < 100 {
			t.Errorf("Got %d answered and %d lost, want none lost", answered, lost)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("It took %v, want an end when the last connection was idle for 900 ms", took)
		}
	}
}

// TestConnectionsThatStay checks that the drain finally closes the remaining connections.
func TestConnectionsThatStay(t *testing.T) {
	o := &options{shutdownConnections: 300 * time.Millisecond}
	srv, conns := serveOn(t, secure.Limits{}, http.NotFoundHandler())
	conn, err := net.Dial("tcp", conns.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := o.drain(t.Context(), &health{}, conns, srv); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took < 300*time.Millisecond || took > 3*time.Second {
		t.Errorf("It took %v, want 300 ms", took)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("Got %v, want the connection closed", err)
	}
}

// dialFrom opens a connection from an address of loopback.
func dialFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// ask sends a request for a path, and returns what arrives of the answer, or nothing if the connection is closed.
func ask(conn net.Conn, path string) string {
	_, _ = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	answer := make([]byte, 1000)
	n, _ := conn.Read(answer)
	return string(answer[:n])
}

func TestConnectionsPerSource(t *testing.T) {
	everyPath := func(string) bool { return true }
	_, conns := serveOn(t, secure.Limits{PerSource: 4}, secure.Callers(everyPath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") })))
	dial := func(from string) net.Conn { return dialFrom(t, from, conns.Addr().String()) }
	first := dial("127.0.0.1")
	if got := ask(first, "/"); !strings.Contains(got, "200 OK") || strings.Contains(got, "Connection: close") {
		t.Errorf("Got %q, want a connection that stays", got)
	}
	others := []net.Conn{dial("127.0.0.1"), dial("127.0.0.1"), dial("127.0.0.1")}
	if got := ask(dial("127.0.0.1"), "/"); got != "" {
		t.Errorf("Got %q on a fifth connection, want it closed", got)
	}
	if got := ask(dial("127.0.0.2"), "/"); !strings.Contains(got, "200 OK") {
		t.Errorf("Got %q from another source, want 200", got)
	}
	if got := ask(others[0], "/"); !strings.Contains(got, "200 OK") || strings.Contains(got, "Connection: close") {
		t.Errorf("Got %q on the second one that calls, want a connection that stays", got)
	}
	if got := ask(others[1], "/"); !strings.Contains(got, "200 OK") || !strings.Contains(got, "Connection: close") {
		t.Errorf("Got %q on the third one that calls, want it to end with the answer", got)
	}
	for _, conn := range append(others, first) {
		conn.Close()
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if got := ask(dial("127.0.0.1"), "/"); got != "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("The source got no connection although it closed all others")
		}
	}
}

// takeAll makes other sources open more connections than a port has, and then renew them until the test ends. If each of them
// has only one, they are not renewed: the one that is being tested would be the oldest soon.
func takeAll(t *testing.T, sources int, conns *secure.Connections) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var full, all sync.WaitGroup
	t.Cleanup(func() { stop(); all.Wait() })
	for i := range sources {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+i/250), byte(1+i%250))}}
		open := make([]net.Conn, 1+2*conns.Total/sources)
		renew := func(n int) {
			if open[n] != nil {
				open[n].Close()
			}
			// An error is that of a connection that is closed at once.
			open[n], _ = d.Dial("tcp", conns.Addr().String())
		}
		full.Add(1)
		all.Go(func() {
			for n := range open {
				renew(n)
			}
			full.Done()
			for n := 0; ctx.Err() == nil && !t.Failed(); n = (n + 1) % len(open) {
				if sources <= conns.Total/2 {
					renew(n)
				}
				time.Sleep(100 * time.Millisecond)
			}
			for _, conn := range open {
				if conn != nil {
					conn.Close()
				}
			}
		})
	}
	full.Wait()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		open, _ := conns.Count()
		if open == conns.Total {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("Got %d connections, want a full port, which has %d", open, conns.Total)
		}
		// While connections are being closed, each new one has a further one closed, so that in the end the port may have room.
		if conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 9, 9)}}).Dial("tcp", conns.Addr().String()); err == nil {
			t.Cleanup(func() { conn.Close() })
		}
	}
}

// TestHealthPortHasRoomForProbes sends probes to a port of which other sources take what they can.
func TestHealthPortHasRoomForProbes(t *testing.T) {
	for _, sources := range []int{1, 14, 64, 600} {
		t.Run(fmt.Sprint(sources), func(t *testing.T) {
			mux := http.NewServeMux()
			(&health{}).register(mux)
			_, limits := secure.LimitsFor(secure.OpenFiles(), 1000)
			_, conns := serveOn(t, limits, mux)
			takeAll(t, sources, conns)
			for i := range 80 {
				if got := ask(dialFrom(t, "127.0.0.1", conns.Addr().String()), "/livez"); !strings.Contains(got, "200 OK") {
					t.Fatalf("Probe %d: got %q, want 200", i, got)
				}
			}
		})
	}
}

// TestAPIServersKeepTheirConnections sends requests to a port of which strangers take all that they can have.
func TestAPIServersKeepTheirConnections(t *testing.T) {
	const parallel = 30
	ca := newAuthority(t)
	for _, c := range []struct {
		name         string
		disableHTTP2 bool
		sources      int
	}{
		{"HTTP/1.1", true, 64},
		{"HTTP/2", false, 64},
		{"HTTP/2, more sources than connections", false, 600},
	} {
		t.Run(c.name, func(t *testing.T) {
			var arrived sync.WaitGroup
			webhooks := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				if req.URL.Path == "/known/at-once" {
					arrived.Done()
					arrived.Wait()
				}
			})
			conns := serveTLS(t, &options{tlsMinVersion: "VersionTLS12", disableHTTP2: c.disableHTTP2}, ca, secure.Limits{PerSource: 100, Total: 200},
				secure.Callers(func(path string) bool { return strings.HasPrefix(path, "/known/") }, webhooks))
			var dialed atomic.Int64
			apiServer := func(address string) *http.Client {
				transport := &http.Transport{
					TLSClientConfig: &tls.Config{RootCAs: ca.pool()}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: parallel,
					DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
						dialed.Add(1)
						return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext(ctx, network, to)
					},
				}
				t.Cleanup(transport.CloseIdleConnections)
				return &http.Client{Transport: transport, Timeout: 10 * time.Second}
			}
			call := func(client *http.Client, path string) {
				resp, err := client.Post("https://"+conns.Addr().String()+path, "application/json", strings.NewReader("{}"))
				if err != nil {
					t.Errorf("Calling %s: %v", path, err)
					return
				}
				resp.Body.Close()
			}
			first := apiServer("127.0.0.1")
			callAtOnce := func() {
				arrived.Add(parallel)
				var calls sync.WaitGroup
				for range parallel {
					calls.Go(func() { call(first, "/known/at-once") })
				}
				calls.Wait()
			}
			callAtOnce()
			takeAll(t, c.sources, conns)
			before := dialed.Load()
			for range 10 {
				if callAtOnce(); t.Failed() {
					return
				}
			}
			if n := dialed.Load() - before; n != 0 {
				t.Errorf("It dialed %d times, want its connections kept", n)
			}
			for range 20 {
				call(apiServer("127.0.0.2"), "/known/")
			}
		})
	}
}

// TestListenerIsClosedTwice covers a drain without connections. The server closes the listener again after
// the drain, which is not an error.
func TestListenerIsClosedTwice(t *testing.T) {
	_, conns := serveOn(t, secure.Limits{}, http.NotFoundHandler())
	for range 2 {
		if err := conns.Close(); err != nil {
			t.Errorf("Closing: %v", err)
		}
	}
}
