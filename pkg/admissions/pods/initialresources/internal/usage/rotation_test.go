package usage

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// writeClient writes a certificate and its key to client.crt and client.key.
func writeClient(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{"client.key": {Type: "PRIVATE KEY", Bytes: der}, "client.crt": {Type: "CERTIFICATE", Bytes: cert}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestARenewedCertificateIsUsed replaces the files of the client certificate while the source is in use.
func TestARenewedCertificateIsUsed(t *testing.T) {
	var last atomic.Value
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last.Store(r.TLS.PeerCertificates[0].Subject.CommonName)
		w.Header().Set("Connection", "close")
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"scalar","result":[1,"40"]}}`))
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.StartTLS()
	defer s.Close()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	writeClient(t, dir, "first")
	source, err := NewPrometheus(PrometheusConfig{
		URL: s.URL, CAFile: ca, CertFile: filepath.Join(dir, "client.crt"), KeyFile: filepath.Join(dir, "client.key"),
	}, 90, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		_, err := source.Percentile(t.Context(), Query{corev1.ResourceCPU, Image{name: "a"}, "", week})
		return err
	}
	if err := ask(); err != nil || last.Load() != "first" {
		t.Errorf("Got the error %v and the certificate %v, want the first one", err, last.Load())
	}
	writeClient(t, dir, "renewed")
	for start := time.Now(); last.Load() != "renewed"; time.Sleep(50 * time.Millisecond) {
		if time.Since(start) > 30*time.Second {
			t.Fatal("The renewed certificate is not used")
		}
		// client-go closes the connections when it notices the certificate, so one query may fail.
		_ = ask()
	}
	if err := ask(); err != nil {
		t.Errorf("Got the error %v with the renewed certificate", err)
	}
}
