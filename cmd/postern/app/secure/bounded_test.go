package secure

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/cmd/postern/app/secure/securetest"
)

const begin, known = "POST / HTTP/1.1\r\nHost: postern\r\n", "POST /known HTTP/1.1\r\nHost: postern\r\n"

// lines returns n lines of a header.
func lines(n int) string { return strings.Repeat("A: b\r\n", n) }

// TestHeadersOfStrangers sends requests on a connection. The handler recognizes it by the path /known.
func TestHeadersOfStrangers(t *testing.T) {
	serving := certificates()
	const get, body = "GET / HTTP/1.1\r\nHost: postern\r\n", "Content-Length: 200\r\n\r\n"
	breaks := strings.Repeat("\n", 200)
	for name, tc := range map[string]struct {
		sent []string
		want string // The status codes, and "lost" if there is no answer.
	}{
		"100 lines":                               {[]string{begin, lines(98), "\r\n"}, "204"},
		"101 lines":                               {[]string{begin, lines(99), "\r\n"}, "400"},
		"101 lines at once":                       {[]string{begin + lines(99) + "\r\n"}, "400"},
		"101 lines without returns":               {[]string{strings.ReplaceAll(begin+lines(99)+"\r\n", "\r", "")}, "400"},
		"lines that never end":                    {[]string{begin + lines(6000)}, "400"},
		"short lines that never end":              {[]string{begin + strings.Repeat("a:\n", 6000)}, "400"},
		"lines behind a return that ends nothing": {[]string{begin, "A: b\r\n\r\r\n", lines(99)}, "400"},
		"one line of 25 KiB":                      {[]string{begin, "Tracestate: " + strings.Repeat("a", 25<<10) + "\r\n", "\r\n"}, "204"},
		"a line that is too long":                 {[]string{begin, "Tracestate: " + strings.Repeat("a", 37<<10) + "\r\n", "\r\n"}, "431"},
		"two requests":                            {[]string{get + lines(90) + "\r\n", get + lines(90) + "\r\n"}, "204 204"},
		"two requests without returns":            {[]string{strings.ReplaceAll(strings.Repeat(get+lines(90)+"\r\n", 2), "\r", "")}, "204 204"},
		"two requests at once":                    {[]string{get + lines(90) + "\r\n" + get + lines(90) + "\r\n"}, "204 204"},
		"many lines of a second request":          {[]string{get + "\r\n" + get + lines(99) + "\r\n"}, "204 lost"},
		"known by its second request":             {[]string{get + "\r\n" + known + body + breaks}, "204 204"},
		"a body of breaks":                        {[]string{known + body + breaks}, "204"},
		"a body of breaks in two parts":           {[]string{known + body + breaks[:120], breaks[120:]}, "204"},
		"101 lines of a known client":             {[]string{known + body + breaks + begin + lines(99) + "\r\n"}, "204 204"},
		"small records":                           {split(begin + lines(90) + "\r\n"), "204"},
		"very many small records":                 {split(begin + "A: " + strings.Repeat("b", 4000) + "\r\n\r\n"), "400"},
		"small records of three requests":         {split(strings.Repeat(get+"A: "+strings.Repeat("b", 1500)+"\r\n\r\n", 3)), "204 204 204"},
		"small records of a known client":         {split(known + body + breaks + begin + "A: " + strings.Repeat("b", 4000) + "\r\n\r\n"), "204 204"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handler := Callers(func(path string) bool { return path == "/known" }, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if got, err := io.ReadAll(req.Body); err != nil || req.ContentLength > 0 && string(got) != breaks {
						t.Errorf("Got the body %q (%v)", got, err)
					}
					if req.TLS == nil || !req.TLS.HandshakeComplete {
						t.Errorf("Got the TLS state %v, want that of the connection", req.TLS)
					}
					w.WriteHeader(http.StatusNoContent)
				}))
				start := time.Now()
				conn := dial(t, NewServer(t.Context(), handler, PortTimeouts), serving, tls.RequestClientCert, &tls.Config{InsecureSkipVerify: true})
				go func() {
					for _, part := range tc.sent {
						if _, err := io.WriteString(conn, part); err != nil {
							return // It was closed because of what was sent.
						}
					}
				}()
				answers := bufio.NewReader(conn)
				var got []string
				for range strings.FieldsSeq(tc.want) {
					resp, err := http.ReadResponse(answers, nil)
					if err != nil {
						got = append(got, "lost")
						break
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					got = append(got, fmt.Sprint(resp.StatusCode))
				}
				if got := strings.Join(got, " "); got != tc.want {
					t.Errorf("Got %s, want %s", got, tc.want)
				}
				if tc.want == "431" {
					_, _ = io.Copy(io.Discard, conn)
					if waited := time.Since(start); waited != 0 {
						t.Errorf("The client learned after %v that nothing follows an answer, want at once", waited)
					}
				}
			})
		})
	}
}

// split returns the bytes of text, one by one.
func split(text string) []string { return strings.Split(text, "") }

// TestHandshakesOfStrangers has clients with many certificates.
func TestHandshakesOfStrangers(t *testing.T) {
	serving := certificates()
	size := len(serving[0].Certificate[0])
	for _, tc := range []struct {
		bytes int
		ok    bool
	}{{20 << 10, true}, {40 << 10, false}, {200 << 10, false}} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			synctest.Test(t, func(t *testing.T) {
				shown := serving[0]
				shown.Certificate = slices.Repeat(shown.Certificate, tc.bytes/size)
				conn := dial(t, NewServer(t.Context(), http.NotFoundHandler(), PortTimeouts), serving, tls.RequestClientCert, &tls.Config{
					InsecureSkipVerify: true, MaxVersion: version,
					GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil },
				})
				var err error
				for _, part := range split(begin + "A: " + strings.Repeat("b", 2000) + "\r\n\r\n") {
					if err == nil {
						_, err = io.WriteString(conn, part)
					}
				}
				if err == nil {
					_, err = http.ReadResponse(bufio.NewReader(conn), nil)
				}
				if (err == nil) != tc.ok {
					t.Errorf("Got %v for %d bytes of certificates with %s", err, tc.bytes, tls.VersionName(version))
				}
			})
		}
	}
}

// TestUnfinishedCertificates has clients that send a part of a certificate, whether the server wants one or not.
func TestUnfinishedCertificates(t *testing.T) {
	serving := certificates()
	for auth, most := range map[tls.ClientAuthType]int{tls.NoClientCert: maxHelloBytes, tls.RequestClientCert: maxHelloBytes + maxCertificateBytes} {
		synctest.Test(t, func(t *testing.T) {
			conn := dial(t, NewServer(t.Context(), http.NotFoundHandler(), PortTimeouts), serving, auth, nil).NetConn()
			first := securetest.Hello(t, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			sent, err := conn.Write(first)
			// A record of 1,024 bytes, the first of which begins a message of 200 KiB with certificates.
			record := append([]byte{22, 3, 3, 4, 0, 11, 3, 32, 0}, make([]byte, 1020)...)
			for err == nil && sent <= 200<<10 {
				var n int
				n, err = conn.Write(record)
				sent += n
			}
			if sent > most || sent < most-len(record) {
				t.Errorf("The server has read %d bytes with %v, want %d", sent, auth, most)
			}
		})
	}
}

// TestPlainRequests sends a request without TLS to a port with TLS.
func TestPlainRequests(t *testing.T) {
	serving := certificates()
	synctest.Test(t, func(t *testing.T) {
		conn := dial(t, NewServer(t.Context(), http.NotFoundHandler(), PortTimeouts), serving, tls.RequestClientCert, nil).NetConn()
		go func() {
			if _, err := io.WriteString(conn, begin+"\r\n"); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("Sending: %v", err)
			}
		}()
		if got, err := io.ReadAll(conn); err != nil || !strings.Contains(string(got), "400") || !strings.Contains(string(got), "HTTPS") {
			t.Errorf("Got %q (%v), want a sentence that says what is wrong", got, err)
		}
	})
}

// TestLinesWithoutTLS sends requests to a port without TLS, where no connection is recognized.
func TestLinesWithoutTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := dialPlain(t, NewServer(t.Context(), http.NotFoundHandler(), HealthTimeouts))
		const body = 100 << 10
		go func() {
			for _, part := range []string{begin, fmt.Sprintf("Content-Length: %d\r\n\r\n", body), strings.Repeat("\n", body), begin + lines(99) + "\r\n"} {
				if _, err := io.WriteString(conn, part); err != nil {
					return // It was closed because of what was sent.
				}
			}
		}()
		answers := bufio.NewReader(conn)
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("Reading the first answer: %v", err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusNotFound {
			t.Errorf("Got %s (%v), want 404", resp.Status, err)
		}
		if resp, err := http.ReadResponse(answers, nil); err == nil {
			t.Errorf("Got %s for a header of 101 lines, want no answer", resp.Status)
		}
	})
}

// TestHandshakesEnd has clients that do not finish a handshake.
func TestHandshakesEnd(t *testing.T) {
	serving := certificates()
	offer := func(protocols int) []byte {
		return securetest.Hello(t, &tls.Config{InsecureSkipVerify: true, NextProtos: append(slices.Repeat([]string{"a"}, protocols), "http/1.1")})
	}
	for name, tc := range map[string]struct {
		hello []byte
		pause time.Duration // Before the client reads.
		ends  time.Duration
	}{
		"silent":                          {nil, 0, PortTimeouts.Header},
		"unfinished":                      {offer(20), 0, PortTimeouts.Header},
		"with an answer that is not read": {offer(20), time.Minute, time.Minute},
		"too large":                       {offer(maxHelloBytes / 2), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				conn := dial(t, NewServer(t.Context(), http.NotFoundHandler(), PortTimeouts), serving, tls.RequestClientCert, nil).NetConn()
				sent, _ := conn.Write(tc.hello)
				time.Sleep(tc.pause)
				answer, _ := io.ReadAll(conn)
				if took := time.Since(start); took != tc.ends || sent > maxHelloBytes || (len(answer) > 0) != (name == "unfinished") {
					t.Errorf("Got %d bytes for %d bytes, and an end after %v", len(answer), sent, took)
				}
			})
		})
	}
}
