package secure

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"time"
)

// What a client may send while its connection is not recognized. Every pod can connect, and the server keeps what has arrived of a
// handshake or a header.
const (
	// maxHelloBytes is for a handshake without the certificates of the client. An API server sends less than 2 KiB, and twice that if the
	// server asks for another hello. crypto/tls accepts 64 KiB, and takes up to 24 bytes of memory for 2 bytes of them.
	maxHelloBytes = 4 << 10
	// maxCertificateBytes is for the certificates of the client. crypto/tls accepts 256 KiB.
	maxCertificateBytes = 32 << 10
	// maxRequestBytes is for the records with a header: maxHeaderBytes, what net/http adds to that, and a record that is read ahead.
	maxRequestBytes = 64 << 10
	// maxHeaderLines is the usual limit of other servers, such as LimitRequestFields of Apache. An API server sends about ten. net/http
	// takes about 130 bytes of memory for a line of 5 bytes. From Go 1.27 on, Server.MaxHeaderValueCount bounds them.
	maxHeaderLines = 100
)

var (
	errManyBytes = errors.New("the client has sent too many bytes before it was recognized")
	errManyLines = errors.New("the client has sent too many lines of a header before it was recognized")
)

// Serve serves the connections with a server of NewServer, and with TLS if the server has a TLS configuration, which must have
// GetCertificate and no Certificates. It bounds what clients send, unless the server has HTTP/2. Like http.Server.Serve, it never returns
// nil.
func Serve(srv *http.Server, conns *Connections) error {
	if srv.TLSConfig == nil {
		return srv.Serve(&listener{Connections: conns})
	}
	if srv.Protocols == nil || srv.Protocols.HTTP2() {
		// net/http serves HTTP/2 only on a tls.Conn.
		return srv.ServeTLS(conns, "", "")
	}
	config := srv.TLSConfig.Clone()
	config.NextProtos = []string{"http/1.1"}
	if config.ClientAuth != tls.NoClientCert {
		config.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			// This is called after the last hello. The client shows its certificates only after it has seen that of the server.
			hello.Conn.(*connection).most += maxCertificateBytes
			return srv.TLSConfig.GetCertificate(hello)
		}
	}
	return srv.Serve(&listener{conns, config, srv})
}

// listener accepts connections that bound what a client sends.
type listener struct {
	*Connections

	config *tls.Config // Nil without TLS.
	srv    *http.Server
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Connections.Accept()
	if err != nil {
		return nil, err
	}
	raw := conn.(*connection)
	if l.config == nil {
		return &bounded{Conn: raw, raw: raw}, nil
	}
	raw.most = maxHelloBytes
	secured := tls.Server(raw, l.config)
	return &boundedTLS{bounded{Conn: secured, raw: raw}, secured, l.srv}, nil
}

// bounded is a connection that fails if its client sends too many lines of a header before it is recognized.
type bounded struct {
	net.Conn // raw, or the connection with TLS on it.

	raw *connection

	// The rest is for the goroutine that reads. net/http has one at a time.

	lines int    // Of the header that is being read, so far.
	line  int    // Bytes of its last line, so far.
	blank bool   // Whether the last line is a carriage return, so far.
	rest  []byte // What was read with a header, and follows it.
}

// Read implements net.Conn. Until the connection is recognized, a call returns nothing that follows a header together with that header.
// The handler that recognizes the connection runs before the next call.
func (b *bounded) Read(p []byte) (n int, err error) {
	recognized := b.raw.recognized.Load()
	switch {
	case recognized && len(b.rest) == 0:
		return b.Conn.Read(p)
	case recognized:
		n = copy(p, b.rest)
		b.rest = b.rest[n:]
		return n, nil
	case b.lines > maxHeaderLines:
		// The error must stay: net/http ignores one that follows a whole line.
		return 0, errManyLines
	case len(b.rest) > 0:
		n = b.header(b.rest[:min(len(p), len(b.rest))])
		copy(p, b.rest[:n])
		b.rest = b.rest[n:]
	default:
		n, err = b.Conn.Read(p)
		if header := b.header(p[:n]); header < n {
			// The next call of Read of the connection returns the error again.
			b.rest, n, err = slices.Clone(p[header:n]), header, nil
		}
	}
	if b.lines > maxHeaderLines {
		b.raw.port.report(b.raw, errManyLines)
		return 0, errManyLines
	}
	return n, err
}

// header counts the lines of a header, and returns how many bytes of p belong to it. A header ends where net/http says so.
func (b *bounded) header(p []byte) int {
	for i, c := range p {
		if c != '\n' {
			b.line++
			b.blank = b.line == 1 && c == '\r'
			continue
		}
		ends := b.line == 0 || b.blank
		b.line, b.blank = 0, false
		if ends {
			b.lines = 0
			return i + 1
		}
		if b.lines++; b.lines > maxHeaderLines {
			break
		}
	}
	return len(p)
}

// NetConn returns the connection beneath.
func (b *bounded) NetConn() net.Conn { return b.raw }

// boundedTLS is a bounded connection with TLS. net/http does not see a tls.Conn, so this type does what net/http does with one.
type boundedTLS struct {
	bounded

	tls *tls.Conn
	srv *http.Server
}

// ConnectionState makes the handshake. net/http calls it before it reads, and sets the TLS state of requests to its result.
// If the handshake fails, so does each call of Read.
func (b *boundedTLS) ConnectionState() tls.ConnectionState {
	_ = b.tls.SetDeadline(time.Now().Add(b.srv.ReadHeaderTimeout))
	if err := b.tls.Handshake(); err != nil { //nolint:noctx // The context of the connection is not here. It ends with the connection.
		if record, ok := errors.AsType[tls.RecordHeaderError](err); ok && record.Conn != nil {
			_, _ = io.WriteString(record.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
		}
		b.srv.ErrorLog.Printf("http: TLS handshake error from %s: %v", b.RemoteAddr(), err)
	}
	_ = b.tls.SetDeadline(time.Time{})
	b.raw.sent, b.raw.most = 0, maxRequestBytes
	return b.tls.ConnectionState()
}

// CloseWrite tells the client that nothing follows. net/http calls it before it closes a connection.
func (b *boundedTLS) CloseWrite() error { return b.tls.CloseWrite() }
