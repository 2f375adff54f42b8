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

// TestUnusedConnectionsStayOpen has an API server that opens a connection and has no request for it yet. It keeps such a
// connection for 90 s, and a request that it sends while Postern closes the connection is lost. One that is busy may need its
// whole time-out for the handshake.
func TestUnusedConnectionsStayOpen(t *testing.T) {
	certificate := httptest.NewTLSServer(nil)
	defer certificate.Close()
	for name, tc := range map[string]struct{ handshake, unused, pause time.Duration }{
		"at once":          {},
		"a slow handshake": {handshake: 9 * time.Second},
		"unused":           {unused: 89 * time.Second},
		"all of it":        {9 * time.Second, 89 * time.Second, 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := NewServer(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if _, err := io.Copy(io.Discard, req.Body); err != nil {
						t.Errorf("Reading the body: %v", err)
					}
					w.WriteHeader(http.StatusNoContent)
				}), PortTimeouts)
				srv.TLSConfig = &tls.Config{Certificates: certificate.TLS.Certificates, MinVersion: tls.VersionTLS12}
				server, client := net.Pipe()
				l := &piped{make(chan net.Conn, 1), make(chan struct{})}
				l.conns <- server
				served := make(chan error)
				go func() { served <- srv.ServeTLS(l, "", "") }()
				defer func() {
					_, _ = client.Close(), srv.Close()
					if err := <-served; !errors.Is(err, http.ErrServerClosed) {
						t.Errorf("Got %v, want the server to end when it is closed", err)
					}
				}()
				conn := tls.Client(client, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the time in the test is not that of the certificate
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
