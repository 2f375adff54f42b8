package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// behind returns the options of a replica that registers the address of the proxy.
func behind(proxy *e2e.Proxy, o e2e.Options) e2e.Options {
	o.Front = proxy.Addr()
	return o
}

func TestReplicasStartedTogetherAgree(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	proxy := e2e.StartProxy(t)
	replicas := []*e2e.Postern{c.LaunchPostern(t, behind(proxy, alwaysPull())), c.LaunchPostern(t, behind(proxy, alwaysPull()))}
	proxy.To(replicas[0].Addr(), replicas[1].Addr())
	for _, p := range replicas {
		p.AwaitReady(t)
		p.AwaitRegistered(t)
	}
	keepCalm(t, c)
	secret, err := c.Admin.CoreV1().Secrets(e2e.PosternNamespace).Get(t.Context(), e2e.SecretName, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("Reading the Secret of the CA: %v", err)
	}
	for resource, u := range configsOf(t, c).get() {
		if got := caBundle(t, u); !bytes.Equal(got, secret.Data["ca.crt"]) {
			t.Errorf("%s has the CA bundle %s, want that of the Secret", resource, got)
		}
	}
	for _, p := range replicas {
		if err := verify(t.Context(), p.Addr(), secret.Data["ca.crt"]); err != nil {
			t.Errorf("The certificate of the replica at %s: %v", p.Addr(), err)
		}
	}
	// At worst each replica applies both configurations, and one replica applies both once more to adopt the time
	// of the other replica.
	if writes := configWrites(t, c); len(writes) > 6 {
		t.Errorf("Until they agreed, the replicas wrote %d times, want 6 at most: %+v", len(writes), writes)
	}
}

func configWrites(t *testing.T, c *e2e.Cluster) []e2e.AuditEvent {
	t.Helper()
	return slices.DeleteFunc(c.PosternWrites(t), func(e e2e.AuditEvent) bool { return e.ObjectRef.Name != configName })
}

func caBundle(t *testing.T, u *unstructured.Unstructured) []byte {
	t.Helper()
	var config struct {
		Webhooks []struct{ ClientConfig struct{ CABundle []byte } }
	}
	decode(t, u, &config)
	if len(config.Webhooks) != 1 {
		t.Fatalf("%s has %d webhooks, want 1", u.GetKind(), len(config.Webhooks))
	}
	return config.Webhooks[0].ClientConfig.CABundle
}

// verify opens a TLS connection and verifies the certificate as the API server does.
func verify(ctx context.Context, address string, bundle []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("the bundle holds no certificate")
	}
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func TestNewerReplicaWins(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	c.StartPostern(t, alwaysPull("--failure-policy=Ignore"))
	c.StartPostern(t, alwaysPull("--exempt-namespaces=kube-system"))
	all := configsOf(t, c)
	newest := func(ctx context.Context) error {
		for resource, u := range all.get() {
			if got := failurePolicy(t, u); got != "Fail" {
				return fmt.Errorf("%s has the failure policy %s", resource, got)
			}
		}
		return nil
	}
	e2e.Eventually(t, repairBound, "the configurations are those of the newer one", newest)
	keepCalm(t, c)
	// Both replicas observe the edit. Only the newer replica repairs the configuration.
	before := all.get()
	all.delete()
	eventuallySame(t, all, before)
	keepCalm(t, c)
}

func failurePolicy(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	var config struct {
		Webhooks []struct{ FailurePolicy string }
	}
	decode(t, u, &config)
	if len(config.Webhooks) != 1 {
		t.Fatalf("%s has %d webhooks, want 1", u.GetKind(), len(config.Webhooks))
	}
	return config.Webhooks[0].FailurePolicy
}

// TestDisabledFamilyIsRemoved tests a replica on which a family is no longer enabled. The replica admits requests of this
// family until it has removed the configurations.
func TestDisabledFamilyIsRemoved(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	old := c.StartPostern(t, alwaysPull())
	all := configsOf(t, c)
	c.StartPostern(t, e2e.Options{})
	e2e.Eventually(t, repairBound, "the new replica has removed the configurations", all.gone)
	e2e.Throughout(t, calm, "the old replica leaves the configurations deleted", all.gone)
	if err := old.Ready(t.Context()); err != nil {
		t.Errorf("The old replica does not serve any more: %v", err)
	}
}

// TestDeletedNamespaceTakesTheConfigurationsAlong deletes Postern's namespace under a load of pod creations. No creation
// may fail.
func TestDeletedNamespaceTakesTheConfigurationsAlong(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	// The service account is deleted with the namespace, but the admin could still create the configurations again.
	o := alwaysPull()
	o.Kubeconfig = c.Kubeconfig(controlplane.Admin)
	p := c.StartPostern(t, o)
	all := configsOf(t, c)
	l := startMixedLoad(t, c, 60, 20000, isCreated)
	if err := c.Admin.CoreV1().Namespaces().Delete(t.Context(), e2e.PosternNamespace, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("Deleting the namespace: %v", err)
	}
	e2e.Eventually(t, time.Minute, "the configurations are gone", all.gone)
	e2e.Throughout(t, calm, "the configurations stay away", all.gone)
	l.stop(t)
	if err := p.Ready(t.Context()); err != nil {
		t.Errorf("Postern is not ready any more: %v", err)
	}
	if err := isUnchanged(c.Admin.CoreV1().Pods(l.namespace).Create(t.Context(), pod("web"), dryRun())); err != nil {
		t.Errorf("Creating a pod: %v", err)
	}
}
