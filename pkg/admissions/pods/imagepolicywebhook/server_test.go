package imagepolicywebhook_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/pkg/admissions/pods/imagepolicywebhook"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

const (
	yes = `{"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "status": {"allowed": true}}`
	no  = `{"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "status": {"allowed": false, "reason": "no"}}`
)

// authority is a CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	cert, key := a.issue(t, "ca")
	a.key = key
	var err error
	if a.cert, err = x509.ParseCertificate(cert); err != nil {
		t.Fatal(err)
	}
	return a
}

// issue returns a certificate for both ends of a connection. The first certificate of an authority is its own.
func (a *authority) issue(t *testing.T, name string) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return der, key
}

// write writes a new certificate and its key to name.crt and name.key.
func (a *authority) write(t *testing.T, dir, name, commonName string) {
	t.Helper()
	cert, key := a.issue(t, commonName)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, name+".key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	write(t, filepath.Join(dir, name+".crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
}

// publish writes the certificate of the authority to name.crt.
func (a *authority) publish(t *testing.T, dir, name string) {
	t.Helper()
	write(t, filepath.Join(dir, name+".crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})))
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// server is a backend that requires client certificates of an authority.
type server struct {
	*httptest.Server
	authority *authority
	// dir has the kubeconfig, ca.crt, client.crt and client.key.
	dir string
}

// serve starts a backend for HTTP/1.1.
func serve(t *testing.T, answer http.HandlerFunc) *server {
	t.Helper()
	return start(t, httptest.NewUnstartedServer(answer))
}

// serveHTTP2 starts a backend for HTTP/2.
func serveHTTP2(t *testing.T, answer http.HandlerFunc) *server {
	t.Helper()
	s := httptest.NewUnstartedServer(answer)
	s.EnableHTTP2 = true
	return start(t, s)
}

func start(t *testing.T, unstarted *httptest.Server) *server {
	t.Helper()
	s := &server{Server: unstarted, authority: newAuthority(t), dir: t.TempDir()}
	clients := x509.NewCertPool()
	clients.AddCert(s.authority.cert)
	cert, key := s.authority.issue(t, "backend")
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: clients,
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	s.authority.write(t, s.dir, "client", "postern")
	s.authority.publish(t, s.dir, "ca")
	s.configure(t, s.URL+"/review")
	return s
}

func (s *server) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

func (s *server) configure(t *testing.T, url string) {
	t.Helper()
	write(t, s.kubeconfig(), kubeconfigFor(url))
}

// kubeconfigFor returns a kubeconfig with relative paths.
func kubeconfigFor(url string) string {
	return `{apiVersion: v1, kind: Config, current-context: backend,
clusters: [{name: backend, cluster: {server: "` + url + `", certificate-authority: ca.crt}}],
users: [{name: postern, user: {client-certificate: client.crt, client-key: client.key}}],
contexts: [{name: backend, context: {cluster: backend, user: postern}}]}`
}

// plugin starts the plugin with this backend and further fields of its configuration. The time-out of the webhook is long.
func (s *server) plugin(t *testing.T, fields string) admit.Func {
	t.Helper()
	return s.registered(t, fields, long)
}

// registered starts the plugin for webhooks with another time-out.
func (s *server) registered(t *testing.T, fields string, timeout time.Duration) admit.Func {
	t.Helper()
	h, err := newPlugin(t, nil, s.kubeconfig(), fields, timeout)
	if err != nil {
		t.Fatal(err)
	}
	return h.Validate
}

// newPlugin starts the plugin, for webhooks that are registered with a time-out.
func newPlugin(t *testing.T, registry metrics.KubeRegistry, kubeconfig, fields string, registered time.Duration) (admit.Handler, error) {
	t.Helper()
	deps := admit.Deps{Timeout: registered, Metrics: registry, Clock: clock.RealClock{}, Go: func(f func(context.Context)) { f(admittest.Context(t)) }}
	return imagepolicywebhook.Plugin.New(deps, fmt.Appendf(nil, "imagePolicy: {kubeConfigFile: %q, retryBackoff: 1, %s}", kubeconfig, fields))
}

// podWith returns the request for a new pod.
func podWith(images ...string) *admit.Request {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace = "web", "shop"
	for _, image := range images {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Image: image})
	}
	r := &admit.Request{Object: pod, AdmissionRequest: &admissionv1.AdmissionRequest{Name: "web", Namespace: "shop", Operation: admissionv1.Create}}
	r.Resource.Version, r.Resource.Resource = "v1", "pods"
	return r
}

// within returns a context with a deadline, as the router sets it.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(admittest.Context(t), d)
	t.Cleanup(cancel)
	return ctx
}

// hang returns when the client is gone.
func hang(r *http.Request) {
	// A server for HTTP/1.1 watches the connection only after it has read the body.
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func answer(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
}
