package e2e_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// rotations is the number of times that the CA is replaced.
const rotations = 4

// TestNoRequestIsLostWhenTheCAIsReplaced replaces the CA several times. Then it deletes the Secret, replaces a replica
// and writes another CA to the Secret. Meanwhile the test creates pods, and no pod may be denied.
func TestNoRequestIsLostWhenTheCAIsReplaced(t *testing.T) {
	ring.Second(t, "a CA is replaced under load")
	t.Parallel()
	c := suite.Lend(t)
	proxy := e2e.StartProxy(t)
	o := behind(proxy, alwaysPull(quickCA("--failure-policy=Fail", "--shutdown-delay-duration=2s")...))
	b := startBalancer(t, proxy)
	first, second := b.startTwo(t, c, o)
	awaitCalled(t, c)

	l := startLoad(t, c)
	l.awaitMore(t, 20)
	signers := map[string]bool{string(caSecret(t, c).Data["tls.crt"]): true}
	for range rotations {
		code, said := c.RunPostern(t, "rotate-ca", "--kubeconfig="+c.Kubeconfig(controlplane.Admin), "--wait", "--timeout=30s")
		if code != 0 || !strings.Contains(said, "joined the bundle") && !strings.Contains(said, "signs") {
			t.Fatalf("rotate-ca exited with %d and said:\n%s", code, said)
		}
		signers[string(caSecret(t, c).Data["tls.crt"])] = true
		l.awaitMore(t, 20)
	}
	if len(signers) != rotations+1 {
		t.Errorf("There were %d CAs, want %d", len(signers), rotations+1)
	}
	l.stop(t)

	l = startLoad(t, c)
	lost := caSecret(t, c)
	if err := c.Admin.CoreV1().Secrets(e2e.PosternNamespace).Delete(t.Context(), e2e.SecretName, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("Deleting the Secret: %v", err)
	}
	third := c.LaunchPostern(t, o)
	b.add(third)
	third.AwaitReady(t)
	if !bytes.Equal(caSecret(t, c).Data["tls.crt"], lost.Data["tls.crt"]) {
		t.Error("The CA was not written back.")
	}
	l.awaitMore(t, 20)
	first.Stop(t)
	foreign := replaceCA(t, c)
	followed(t, c, foreign, second, third)
	l.awaitMore(t, 20)
	l.stop(t)
	e2e.Eventually(t, time.Minute, "only the CA that signs is registered", func(context.Context) error {
		for resource, u := range configsOf(t, c).get() {
			if got := bytes.Count(caBundle(t, u), []byte("BEGIN")); got != 1 {
				return fmt.Errorf("%s has %d CAs", resource, got)
			}
		}
		return nil
	})
}

// replaceCA writes an unrelated CA to the Secret and returns the CA bundle. A rotation never does this.
func replaceCA(t *testing.T, c *e2e.Cluster) []byte {
	t.Helper()
	secret := caSecret(t, c)
	secret.Data = otherCA(t)
	if _, err := c.Admin.CoreV1().Secrets(e2e.PosternNamespace).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("Replacing the CA: %v", err)
	}
	return secret.Data["ca.crt"]
}

// followed waits until the replicas serve certificates that the CA bundle verifies.
func followed(t *testing.T, c *e2e.Cluster, bundle []byte, replicas ...*e2e.Postern) {
	t.Helper()
	e2e.Eventually(t, settleBound, "the replicas follow the other CA", func(ctx context.Context) error {
		var errs []error
		for _, p := range replicas {
			errs = append(errs, p.Ready(ctx), verify(ctx, p.Addr(), bundle))
		}
		return errors.Join(errs...)
	})
	awaitCalled(t, c)
}

// otherCA returns the content of the CA Secret of another installation.
func otherCA(t *testing.T) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "other-ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return map[string][]byte{"ca.crt": crt, "tls.crt": crt, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})}
}

// writeOtherCA writes a file for each field of the CA Secret of another installation, and returns the folder.
func writeOtherCA(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range otherCA(t) {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestBundleIsDropped switches to an external certificate, which the API server verifies with its system roots.
func TestBundleIsDropped(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	c.StartPostern(t, alwaysPull("--failure-policy=Ignore")).Stop(t)
	dir := writeOtherCA(t)
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	all := configsOf(t, c)
	for resource, u := range all.get() {
		if len(caBundle(t, u)) == 0 {
			t.Fatalf("%s has no bundle to begin with", resource)
		}
	}
	// Postern registers after a successful call to itself, so the system roots of Postern must contain the CA too.
	o := alwaysPull("--failure-policy=Ignore", "--tls-cert-file="+certFile, "--tls-private-key-file="+keyFile)
	o.Env = []string{"SSL_CERT_FILE=" + certFile}
	c.Grant(t, o.Flags...)
	c.StartPostern(t, o)
	e2e.Eventually(t, settleBound, "the bundle is gone", func(context.Context) error {
		for resource, u := range all.get() {
			if got := caBundle(t, u); len(got) != 0 {
				return fmt.Errorf("%s has the bundle %s", resource, got)
			}
		}
		return nil
	})
	keepCalm(t, c)
}
