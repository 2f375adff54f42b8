package controlplane_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/test/controlplane"
)

// webhook registers a webhook that the API server calls through a Service. The type of the Service needs neither
// nodes nor endpoints.
const webhook = `
apiVersion: v1
kind: Service
metadata: {name: hook, namespace: default}
spec: {type: ExternalName, externalName: localhost, ports: [{port: %[1]s}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hook}
webhooks:
- name: hook.postern.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig:
    service: {name: hook, namespace: default, port: %[1]s, path: /validate}
    caBundle: %[2]s
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
`

func TestWebhookBehindAnExternalNameService(t *testing.T) {
	t.Parallel()
	server, authority := hook(t)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := controlplane.StartForTest(t, controlplane.Options{})
	apply := c.Kubectl(t.Context(), controlplane.Admin, "apply", "-f", "-")
	apply.Stdin = strings.NewReader(fmt.Sprintf(webhook, port, base64.StdEncoding.EncodeToString(authority)))
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("Applying the webhook: %v: %s", err, out)
	}
	// The API server observes a webhook configuration shortly after it is stored.
	var out []byte
	eventually(t, "the webhook is called", func() bool {
		out, _ = c.Kubectl(t.Context(), controlplane.Admin, "create", "configmap", "any", "--dry-run=server").CombinedOutput()
		return bytes.Contains(out, []byte("denied the request: seen"))
	})
	if t.Failed() {
		t.Logf("kubectl said: %s", out)
	}
}

// hook is a webhook that denies every request. Its certificate is for the name of its Service.
func hook(t *testing.T) (*httptest.Server, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"hook.default.svc"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(deny))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func deny(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	_, rest, found := bytes.Cut(body, []byte(`"uid":"`))
	uid, _, _ := bytes.Cut(rest, []byte(`"`))
	if err != nil || !found {
		http.Error(w, "not a review", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
		"response": {"uid": %q, "allowed": false, "status": {"message": "seen"}}}`, uid)
}
