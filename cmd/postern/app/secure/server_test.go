package secure

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
)

// piped is a listener whose only connection is a pipe.
type piped struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *piped) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *piped) Close() error {
	close(p.done)
	return nil
}

func (p *piped) Addr() net.Addr { return &net.TCPAddr{} }

// certificates returns certificates for a server.
func certificates() []tls.Certificate {
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	return srv.TLS.Certificates
}

// dial returns a connection to a server with TLS. Its handshake is not made yet.
func dial(t *testing.T, srv *http.Server, serving []tls.Certificate, auth tls.ClientAuthType, config *tls.Config) *tls.Conn {
	t.Helper()
	srv.TLSConfig = &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving[0], nil },
		ClientAuth:     auth, MinVersion: tls.VersionTLS12,
	}
	srv.Protocols = &http.Protocols{}
	srv.Protocols.SetHTTP1(true)
	return tls.Client(dialPlain(t, srv), config)
}

// dialPlain returns a connection to a server.
func dialPlain(t *testing.T, srv *http.Server) net.Conn {
	t.Helper()
	server, client := net.Pipe()
	l := &piped{make(chan net.Conn, 1), make(chan struct{})}
	l.conns <- server
	served := make(chan error)
	go func() { served <- Serve(srv, NewConnections(l, Limits{}, klog.FromContext(t.Context()))) }()
	t.Cleanup(func() {
		_, _ = client.Close(), srv.Close()
		time.Sleep(time.Second) // After a refusal net/http waits for half of that.
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Got %v, want the server to end when it is closed", err)
		}
	})
	return client
}

// TestBusyAPIServers has an API server that needs longer for a handshake or a header than it waits for most webhooks, which is
// 10 s. If the connection were closed before that time, the failure policy would decide.
func TestBusyAPIServers(t *testing.T) {
	serving := certificates()
	for name, tc := range map[string]struct{ handshake, unused, pause time.Duration }{
		"at once":              {},
		"a slow handshake":     {handshake: 14 * time.Second},
		"a late header":        {unused: 14 * time.Second},
		"a header in parts":    {pause: 7 * time.Second},
		"all of it is as slow": {14 * time.Second, 4 * time.Second, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := NewServer(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if _, err := io.Copy(io.Discard, req.Body); err != nil {
						t.Errorf("Reading the body: %v", err)
					}
					w.WriteHeader(http.StatusNoContent)
				}), PortTimeouts)
				conn := dial(t, srv, serving, tls.NoClientCert, &tls.Config{InsecureSkipVerify: true})
				time.Sleep(tc.handshake)
				if err := conn.HandshakeContext(t.Context()); err != nil {
					t.Fatalf("The handshake failed: %v", err)
				}
				time.Sleep(tc.unused)
				for _, part := range []string{"POST / HTTP/1.1\r\nHost: postern\r\n", "Content-Length: 2\r\n\r\n", "{}"} {
					if _, err := conn.Write([]byte(part)); err != nil {
						t.Fatalf("Sending a request: %v", err)
					}
					time.Sleep(tc.pause)
				}
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatalf("Reading the answer: %v", err)
				}
				defer resp.Body.Close()
				if resp.StatusCode != http.StatusNoContent {
					t.Errorf("Got %s", resp.Status)
				}
			})
		})
	}
}
