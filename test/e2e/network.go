package e2e

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
)

const portAttempts = 100

// Loopback returns the loopback address with the port.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// FreePort returns a port on which no process listens. The port is below the ephemeral ports, because the system might
// assign an ephemeral port to a client before the caller listens on it.
func FreePort(tb testing.TB) int {
	tb.Helper()
	var lc net.ListenConfig
	for range portAttempts {
		port := 20000 + rand.IntN(12000) //nolint:gosec // anybody may guess it
		if l, err := lc.Listen(tb.Context(), "tcp", Loopback(port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	tb.Fatal("There is no free port.")
	return 0
}

// Proxy forwards TCP connections. It simulates kube-proxy in front of several Posterns, or the network between a
// Postern and the API server.
type Proxy struct {
	listener net.Listener
	copying  sync.WaitGroup

	mu       sync.Mutex
	backends []string
	next     int
	open     map[net.Conn]bool

	faults faults
}

// StartProxy starts a proxy that distributes connections to the backends in turn. The proxy is stopped when the test
// ends.
func StartProxy(tb testing.TB, backends ...string) *Proxy {
	tb.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(tb.Context(), "tcp", Loopback(0))
	if err != nil {
		tb.Fatalf("Starting a proxy: %v", err)
	}
	p := &Proxy{listener: l, backends: backends, open: map[net.Conn]bool{}}
	p.copying.Go(func() { p.accept(tb.Context()) })
	tb.Cleanup(func() {
		_ = l.Close()
		p.Cut()
		p.copying.Wait()
	})
	return p
}

// Addr returns the address on which the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// To sets the backends of new connections. Open connections keep their backends, as with kube-proxy.
func (p *Proxy) To(backends ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backends = slices.Clone(backends)
}

// Cut closes all connections and refuses new connections until To sets new backends.
func (p *Proxy) Cut() {
	p.To()
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		_ = c.Close()
	}
}

func (p *Proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.copying.Go(func() { p.serve(ctx, client) })
	}
}

func (p *Proxy) serve(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	backend, ok := p.pick()
	if !ok {
		return
	}
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", backend)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if !p.track(client, server) {
		return
	}
	defer p.forget(client, server)
	done := make(chan struct{}, 2)
	go p.pass(client, server, true, done)
	go p.pass(server, client, false, done)
	<-done
	<-done
}

// pass copies data until the sender closes its side of the connection, and then closes the write side of the receiver.
func (p *Proxy) pass(to, from net.Conn, answers bool, done chan<- struct{}) {
	err := p.relay(to, from, answers)
	if tcp, ok := to.(*net.TCPConn); ok && errors.Is(err, io.EOF) {
		_ = tcp.CloseWrite()
	} else {
		_, _ = to.Close(), from.Close()
	}
	done <- struct{}{}
}

func (p *Proxy) pick() (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.backends) == 0 {
		return "", false
	}
	p.next++
	return p.backends[p.next%len(p.backends)], true
}

// track returns false if the proxy has been cut since the backend was selected.
func (p *Proxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.backends) == 0 {
		return false
	}
	for _, c := range conns {
		p.open[c] = true
	}
	return true
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.open, c)
	}
}

// StartSilence accepts connections at an address until the test ends, and never sends any data.
func StartSilence(tb testing.TB, address string) {
	tb.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(tb.Context(), "tcp", address)
	if err != nil {
		tb.Fatalf("Starting a silence: %v", err)
	}
	var holding sync.WaitGroup
	over := make(chan struct{})
	holding.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			holding.Go(func() {
				<-over
				_ = conn.Close()
			})
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		close(over)
		holding.Wait()
	})
}
