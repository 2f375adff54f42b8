package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ImageBackend is a backend of ImagePolicyWebhook. It requires a client certificate. The names of the images decide
// its answers:
//
//	denied…   a denial with the number of images, the namespace and the annotations as the reason
//	silent…   a denial without a reason
//	slow…     a denial after almost a second
//	broken…   HTTP 403
//	garbage…  text that is no answer
//	busy…     HTTP 429 without Retry-After
//
// It allows all other images.
type ImageBackend struct {
	// Kubeconfig is the path of a kubeconfig for the backend.
	Kubeconfig string

	server *httptest.Server
	calls  atomic.Int64
}

// slowReview is more than the part of a second that Postern waits for a backend.
const slowReview = 900 * time.Millisecond

// StartImageBackend starts a backend. It is stopped when the test ends.
func StartImageBackend(tb testing.TB) *ImageBackend {
	tb.Helper()
	b := &ImageBackend{Kubeconfig: filepath.Join(tb.TempDir(), "image-policy.kubeconfig")}
	client, key := ClientCertificate(tb)
	b.server = httptest.NewUnstartedServer(b)
	b.server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	b.server.TLS.ClientCAs.AppendCertsFromPEM(client)
	b.server.StartTLS()
	tb.Cleanup(func() { b.server.Close() })
	const name = "backend"
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   b.server.URL + "/review",
			CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.server.Certificate().Raw}),
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificateData: client, ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, b.Kubeconfig)
	if err != nil {
		tb.Fatalf("Writing a kubeconfig: %v", err)
	}
	return b
}

// ClientCertificate returns a self-signed certificate and its key as PEM.
func ClientCertificate(tb testing.TB) (certificate, key []byte) {
	tb.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		tb.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// Calls returns how often the backend was called.
func (b *ImageBackend) Calls() int64 { return b.calls.Load() }

// Leave stops the backend.
func (b *ImageBackend) Leave() { b.server.Close() }

// Return starts a backend that was stopped, at the same address.
func (b *ImageBackend) Return(tb testing.TB) {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", b.server.Listener.Addr().String())
	if err != nil {
		tb.Fatalf("Starting the backend again: %v", err)
	}
	again := &httptest.Server{Listener: listener, TLS: b.server.TLS, Config: &http.Server{Handler: b, ReadHeaderTimeout: startBound}}
	again.StartTLS()
	b.server = again
}

// ServeHTTP answers a review.
func (b *ImageBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.calls.Add(1)
	var review imagepolicyv1alpha1.ImageReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Status.Allowed = true
	for _, c := range review.Spec.Containers {
		switch {
		case strings.HasPrefix(c.Image, "denied"):
			review.Status.Allowed = false
			review.Status.Reason = fmt.Sprintf("%s is one of %d images in %s with %v", c.Image, len(review.Spec.Containers), review.Spec.Namespace, review.Spec.Annotations)
		case strings.HasPrefix(c.Image, "silent"):
			review.Status.Allowed = false
		case strings.HasPrefix(c.Image, "slow"):
			time.Sleep(slowReview)
			review.Status.Allowed = false
		case strings.HasPrefix(c.Image, "broken"):
			http.Error(w, "out of order", http.StatusForbidden)
			return
		case strings.HasPrefix(c.Image, "busy"):
			http.Error(w, "too many reviews", http.StatusTooManyRequests)
			return
		case strings.HasPrefix(c.Image, "garbage"):
			fmt.Fprint(w, "<html>")
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}
