package e2e_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/test/e2e"
)

// quickCA returns flags with durations that make Postern replace its CA within seconds.
func quickCA(flags ...string) []string {
	return append(flags, "--ca-settle-duration=1s", "--serving-certificate-validity=6s", "--ca-validity=1h")
}

func caSecret(t *testing.T, c *e2e.Cluster) *corev1.Secret {
	t.Helper()
	secret, err := c.Admin.CoreV1().Secrets(e2e.PosternNamespace).Get(t.Context(), e2e.SecretName, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("Reading the Secret of the CA: %v", err)
	}
	return secret
}

func TestCAIsMadeOnce(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	p := c.StartPostern(t, alwaysPull())
	first := caSecret(t, c)
	p.Stop(t)
	p = startServing(t, c, alwaysPull())
	second := caSecret(t, c)
	if first.UID != second.UID || first.ResourceVersion != second.ResourceVersion {
		t.Errorf("After a restart the Secret is %s at %s, want %s at %s", second.UID, second.ResourceVersion, first.UID, first.ResourceVersion)
	}
	for resource, u := range configsOf(t, c).get() {
		if !bytes.Equal(caBundle(t, u), first.Data["ca.crt"]) {
			t.Errorf("%s has another bundle than the Secret", resource)
		}
	}
	if err := verify(t.Context(), p.Addr(), first.Data["ca.crt"]); err != nil {
		t.Errorf("The certificate of the second Postern: %v", err)
	}
}

// TestBrokenCAIsReplaced tests a Secret with an invalid CA. A Postern that starts does not exit. It logs the error, and
// creates a new CA if no other client repairs the Secret.
func TestBrokenCAIsReplaced(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	p := c.StartPostern(t, alwaysPull())
	good := caSecret(t, c)
	p.Stop(t)
	for _, test := range []struct {
		name, key string
		data      []byte
		want      string
	}{
		{"no bundle", "ca.crt", nil, "key ca.crt: missing or empty"},
		{"no key", "tls.key", nil, "key tls.key: missing or empty"},
		{"garbage for a certificate", "tls.crt", []byte("garbage"), "key tls.crt: 0 of 0 PEM blocks can be decoded"},
		{"a key in the bundle", "ca.crt", append(bytes.Clone(good.Data["ca.crt"]), good.Data["tls.key"]...), "key ca.crt: holds a PEM block"},
	} {
		t.Run(test.name, func(t *testing.T) {
			secret := caSecret(t, c)
			secret.Data = maps.Clone(good.Data)
			secret.Data[test.key] = test.data
			if _, err := c.Admin.CoreV1().Secrets(e2e.PosternNamespace).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
				t.Fatalf("Breaking the Secret: %v", err)
			}
			p := startServing(t, c, alwaysPull(quickCA()...))
			defer p.Stop(t)
			if want := "Secret postern-system/postern-ca, " + test.want; !strings.Contains(p.Log(), want) {
				t.Errorf("It did not say %q", want)
			}
			if strings.Contains(p.Log(), "PRIVATE KEY-----") {
				t.Error("It wrote the key.")
			}
			for resource, u := range configsOf(t, c).get() {
				if err := verify(t.Context(), p.Addr(), caBundle(t, u)); err != nil {
					t.Errorf("By the bundle of %s: %v", resource, err)
				}
			}
		})
	}
}
