package certs_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/postern-dev/postern/pkg/certs"
)

const serverName = "postern.postern-system.svc"

// day is the unit of validity periods.
const day = 24 * time.Hour

func options(c *clocktesting.FakeClock) certs.Options {
	return certs.Options{DNSNames: []string{serverName}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Clock: c}
}

func newClock() *clocktesting.FakeClock {
	return clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
}

func newAuthority(t *testing.T, store certs.Store, o certs.Options) *certs.Authority {
	t.Helper()
	a, err := certs.NewAuthority(logging(t), store, o)
	if err != nil {
		t.Fatalf("NewAuthority: %v", err)
	}
	return a
}

// logging returns the test's context with the test's log, which is shown only if the test fails.
func logging(t *testing.T) context.Context {
	t.Helper()
	return klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.NewConfig()))
}

// leaf returns the certificate that the source serves.
func leaf(t *testing.T, source certs.Source) *x509.Certificate {
	t.Helper()
	cert, err := source.GetCertificate(nil)
	if err != nil {
		t.Fatalf("GetCertificate: %v", err)
	}
	return cert.Leaf
}

// parse returns all certificates of a bundle.
func parse(t *testing.T, bundle []byte) []*x509.Certificate {
	t.Helper()
	var all []*x509.Certificate
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatalf("Parsing the bundle: %v", err)
		}
		all = append(all, c)
	}
	return all
}

// run starts the source, waits until its ticker uses the clock, and returns its log.
func run(t *testing.T, source certs.Source, c *clocktesting.FakeClock) *logged {
	t.Helper()
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
	})
	eventually(t, "the loop has a ticker", c.HasWaiters)
	return &logged{sink: logger.GetSink().(ktesting.Underlier)}
}

type logged struct{ sink ktesting.Underlier }

// count returns the number of log lines with a message.
func (l *logged) count(message string) int {
	return bytes.Count([]byte(l.sink.GetBuffer().String()), []byte(message))
}

// wantOneOutage checks that the log has one message for the begin and one message for the end of an outage of any
// length.
func wantOneOutage(t *testing.T, logs *logged) {
	t.Helper()
	eventually(t, "the recovery is logged", func() bool { return logs.count("refreshed again") == 1 })
	if got := logs.count("cannot be refreshed"); got != 1 {
		t.Errorf("The outage was logged %d times, want once", got)
	}
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for range 2000 {
		if condition() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("Timed out waiting for: %s", what)
}

// together calls f n times concurrently and returns the results.
func together[T any](n int, f func() T) []T {
	results := make([]T, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			results[i] = f()
		})
	}
	close(start)
	wg.Wait()
	return results
}

// listen serves TLS with the source's certificates and returns the address.
func listen(t *testing.T, source certs.Source) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: source.GetCertificate})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_ = conn.(*tls.Conn).HandshakeContext(t.Context())
			}()
		}
	}()
	return l.Addr().String()
}

// shake performs one handshake like the API server: it verifies the name and the bundle.
func shake(ctx context.Context, address, name string, bundle []byte, now time.Time) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("no certificate in the bundle")
	}
	dialer := tls.Dialer{Config: &tls.Config{
		RootCAs: roots, ServerName: name, Time: func() time.Time { return now },
	}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
