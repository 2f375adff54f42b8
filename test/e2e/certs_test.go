package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/test/e2e"
)

// storeBound is how long a replica may take to follow another CA: it reads the Secret once a minute.
const storeBound = 75 * time.Second

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

func TestBrokenCAIsAStartError(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	p := c.StartPostern(t, alwaysPull())
	good := caSecret(t, c)
	p.Stop(t)
	all := configsOf(t, c)
	all.delete()
	kubeconfig := c.PosternKubeconfig(t, c.URL())
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
			code, said := c.RunPostern(t, "--kubeconfig="+kubeconfig, "--bind-address=127.0.0.1", "--health-bind-address=",
				fmt.Sprintf("--secure-port=%d", e2e.FreePort(t)), "--webhook-url=https://127.0.0.1:1", "--admission-control=AlwaysPullImages")
			lines := strings.Split(strings.TrimSpace(said), "\n")
			last := lines[len(lines)-1]
			if want := "postern: certificates: loading the CA: Secret postern-system/postern-ca, " + test.want; code != 2 || !strings.HasPrefix(last, want) {
				t.Errorf("It exited with %d and %q, want 2 and %q", code, last, want)
			}
			if strings.Contains(said, "PRIVATE KEY-----") {
				t.Errorf("It wrote the key: %s", said)
			}
			if err := all.gone(t.Context()); err != nil {
				t.Errorf("After a failed start: %v", err)
			}
		})
	}
}

// TestReplicasFollowANewCA deletes the Secret, as one would to get rid of a CA whose key has leaked, and
// restarts one replica.
func TestReplicasFollowANewCA(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	proxy := e2e.StartProxy(t)
	o := behind(proxy, alwaysPull())
	stays, goes := c.LaunchPostern(t, o), c.LaunchPostern(t, o)
	proxy.To(stays.Addr(), goes.Addr())
	stays.AwaitRegistered(t)
	goes.AwaitRegistered(t)
	old := caSecret(t, c)
	if err := c.Admin.CoreV1().Secrets(e2e.PosternNamespace).Delete(t.Context(), e2e.SecretName, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("Deleting the Secret: %v", err)
	}
	proxy.To(stays.Addr())
	goes.Stop(t)
	comes := c.LaunchPostern(t, o)
	comes.AwaitReady(t)
	bundle := caSecret(t, c).Data["ca.crt"]
	if bytes.Equal(bundle, old.Data["ca.crt"]) {
		t.Fatal("The CA is still the old one.")
	}
	if err := verify(t.Context(), comes.Addr(), bundle); err != nil {
		t.Errorf("The certificate of the new replica: %v", err)
	}
	proxy.To(stays.Addr(), comes.Addr())
	before := len(configWrites(t, c))
	e2e.Eventually(t, storeBound, "the other replica follows", func(ctx context.Context) error {
		return verify(ctx, stays.Addr(), bundle)
	})
	comes.AwaitRegistered(t)
	all := configsOf(t, c)
	e2e.Eventually(t, repairBound, "the configurations have the new bundle", func(context.Context) error {
		for resource, u := range all.get() {
			if !bytes.Equal(caBundle(t, u), bundle) {
				return fmt.Errorf("%s has another one", resource)
			}
		}
		return nil
	})
	keepCalm(t, c)
	awaitCalled(t, c)
	t.Logf("%d writes", len(configWrites(t, c))-before)
}
