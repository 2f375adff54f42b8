package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/cmd/postern/app/secure"
	"github.com/postern-dev/postern/cmd/postern/app/secure/securetest"
)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if template, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return &authority{template, key}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// file writes the CA's certificate and returns its path.
func (a *authority) file(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func (a *authority) sign(t *testing.T, usage x509.ExtKeyUsage) *tls.Certificate {
	t.Helper()
	return a.signFor(t, usage, "")
}

func (a *authority) signFor(t *testing.T, usage x509.ExtKeyUsage, commonName string, dns ...string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: commonName}, DNSNames: dns, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// listenTLS serves webhooks and returns the URL of the server.
func listenTLS(t *testing.T, o *options, server *authority) string {
	t.Helper()
	webhooks := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "webhook") })
	return "https://" + serveTLS(t, o, server, secure.Limits{}, webhooks).Addr().String()
}

// serveTLS serves webhooks within limits of connections.
func serveTLS(t *testing.T, o *options, server *authority, limits secure.Limits, webhooks http.Handler) *secure.Connections {
	t.Helper()
	serving := server.sign(t, x509.ExtKeyUsageServerAuth)
	srv, err := o.newServer(t.Context(), o.secureHandler(&health{}, webhooks), func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return serving, nil }, clock.RealClock{})
	if err != nil {
		t.Fatalf("Making the server: %v", err)
	}
	o.bindAddress, o.securePort = "127.0.0.1", 0
	l, _, err := o.listen(t.Context())
	if err != nil {
		t.Fatalf("Listening: %v", err)
	}
	conns := secure.NewConnections(l, limits, klog.FromContext(t.Context()))
	go func() { _ = secure.Serve(srv, conns) }()
	t.Cleanup(func() { srv.Close() })
	return conns
}

// fetch returns the status and the protocol, or the error.
func fetch(t *testing.T, url string, config *tls.Config) string {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	return resp.Proto + " " + resp.Status
}

func TestClientCA(t *testing.T) {
	server, clients, strangers := newAuthority(t), newAuthority(t), newAuthority(t)
	url := listenTLS(t, &options{clientCA: clients.file(t), tlsMinVersion: "VersionTLS12", disableHTTP2: true}, server)
	ours, theirs := clients.sign(t, x509.ExtKeyUsageClientAuth), strangers.sign(t, x509.ExtKeyUsageClientAuth)
	for _, c := range []struct {
		name, path string
		cert       *tls.Certificate
		want       string // Empty if the handshake fails.
	}{
		{"no certificate", "/pods/mutate", nil, "401 Unauthorized"},
		{"no certificate for health", "/readyz", nil, "200 OK"},
		{"no certificate for life", "/livez", nil, "200 OK"},
		{"no certificate for what looks like health", "/readyz/", nil, "401 Unauthorized"},
		{"no certificate for a canary", "/canary/x/validate", nil, "401 Unauthorized"},
		{"a certificate", "/pods/mutate", ours, "200 OK"},
		{"a stranger's", "/pods/mutate", theirs, ""},
		{"one for servers", "/pods/mutate", clients.sign(t, x509.ExtKeyUsageServerAuth), ""},
	} {
		config := &tls.Config{RootCAs: server.pool()}
		if c.cert != nil {
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.cert, nil }
		}
		got := fetch(t, url+c.path, config)
		if !strings.Contains(got, c.want) || strings.HasPrefix(got, "HTTP/") != (c.want != "") {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestClientNames(t *testing.T) {
	server, clients := newAuthority(t), newAuthority(t)
	url := listenTLS(t, &options{clientCA: clients.file(t), clientNames: []string{"kube-apiserver", "api.example.com"}, tlsMinVersion: "VersionTLS12"}, server)
	for want, cert := range map[string]*tls.Certificate{
		"200 OK":        clients.signFor(t, x509.ExtKeyUsageClientAuth, "kube-apiserver"),
		"200":           clients.signFor(t, x509.ExtKeyUsageClientAuth, "", "x", "api.example.com"),
		"403 Forbidden": clients.signFor(t, x509.ExtKeyUsageClientAuth, "kubelet", "example.com"),
		"403":           clients.sign(t, x509.ExtKeyUsageClientAuth),
	} {
		config := &tls.Config{RootCAs: server.pool(), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }}
		if got := fetch(t, url+"/pods/mutate", config); !strings.Contains(got, want) {
			t.Errorf("Got %q, want %q", got, want)
		}
	}
}

// TestClientCAIsReloaded replaces the client CA, and then writes an invalid file.
func TestClientCAIsReloaded(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	file := before.file(t)
	ca, err := secure.NewClientCA(file, 0, clock.RealClock{}, klog.Logger{})
	if err != nil {
		t.Fatal(err)
	}
	want := func(when string, a *authority, ok bool) {
		t.Helper()
		if err := ca.Verify(a.sign(t, x509.ExtKeyUsageClientAuth).Certificate, nil); (err == nil) != ok {
			t.Errorf("%s: got %v, want it verified: %v", when, err, ok)
		}
	}
	want("At first", before, true)
	want("At first", after, false)
	replace := func(content []byte) {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replace(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: after.cert.Raw}))
	want("Replaced", before, false)
	want("Replaced", after, true)
	replace([]byte("garbage"))
	want("Broken", after, true)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	want("Gone", after, true)
}

// TestStrangersDoNotWait has a client whose certificate the client CA has not signed. With TLS 1.2 it could keep the server waiting for
// the next message, and its certificate in memory, until the time for the handshake is over.
func TestStrangersDoNotWait(t *testing.T) {
	server, clients, strangers := newAuthority(t), newAuthority(t), newAuthority(t)
	conns := serveTLS(t, &options{clientCA: clients.file(t), tlsMinVersion: "VersionTLS12", disableHTTP2: true}, server, secure.Limits{}, http.NotFoundHandler())
	for name, c := range map[string]struct {
		cert  *tls.Certificate
		waits bool
	}{"ours": {clients.sign(t, x509.ExtKeyUsageClientAuth), true}, "theirs": {strangers.sign(t, x509.ExtKeyUsageClientAuth), false}} {
		conn, err := net.Dial("tcp", conns.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		hello := securetest.Hello(t, &tls.Config{ServerName: "localhost", MaxVersion: tls.VersionTLS12})
		if _, err := conn.Write(slices.Concat(hello, securetest.Certificates(c.cert.Certificate...))); err != nil {
			t.Errorf("%s: sending: %v", name, err)
		}
		limit := secure.PortTimeouts.Header - 2*time.Second
		if c.waits {
			limit = 100 * time.Millisecond
		}
		_ = conn.SetReadDeadline(time.Now().Add(limit))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) != c.waits {
			t.Errorf("%s: got %v within %v, want the connection to be open: %v", name, err, limit, c.waits)
		}
	}
}

// TestSessionsAreNotResumed has a client that would resume a session.
func TestSessionsAreNotResumed(t *testing.T) {
	server := newAuthority(t)
	url := listenTLS(t, &options{tlsMinVersion: "VersionTLS12", disableHTTP2: true}, server)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			RootCAs: server.pool(), MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(1),
		}}
		for range 2 {
			resp, err := (&http.Client{Transport: transport}).Get(url + "/livez")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.TLS.DidResume {
				t.Errorf("%s: the session was resumed", tls.VersionName(version))
			}
		}
	}
}

func TestProtocolsOfTheServer(t *testing.T) {
	server := newAuthority(t)
	for _, c := range []struct {
		name   string
		o      options
		client *tls.Config
		want   string
	}{
		{"HTTP/2", options{tlsMinVersion: "VersionTLS12"}, &tls.Config{}, "HTTP/2.0 200 OK"},
		{"HTTP/1.1", options{tlsMinVersion: "VersionTLS12", disableHTTP2: true}, &tls.Config{}, "HTTP/1.1 200 OK"},
		{"TLS 1.2", options{tlsMinVersion: "VersionTLS12"}, &tls.Config{MaxVersion: tls.VersionTLS12}, "HTTP/2.0 200 OK"},
		{"TLS 1.1", options{tlsMinVersion: "VersionTLS12"}, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, "protocol version not supported"},
		{"TLS 1.2 where 1.3 is wanted", options{tlsMinVersion: "VersionTLS13"}, &tls.Config{MaxVersion: tls.VersionTLS12}, "protocol version not supported"},
		{
			"a cipher suite that is not listed",
			options{tlsMinVersion: "VersionTLS12", tlsCipherSuites: []string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}},
			&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}}, "handshake failure",
		},
	} {
		c.client.RootCAs = server.pool()
		if got := fetch(t, listenTLS(t, &c.o, server)+"/livez", c.client); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
