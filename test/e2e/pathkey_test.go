package e2e_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/internal/segment"
	"github.com/postern-dev/postern/test/e2e"
)

// sharedSegment returns the segment of the key in the Secret.
func sharedSegment(t *testing.T, c *e2e.Cluster) string {
	t.Helper()
	secret, err := c.Admin.CoreV1().Secrets(e2e.PosternNamespace).Get(t.Context(), segment.SecretName, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("Reading the Secret of the key: %v", err)
	}
	return segment.Of(secret.Data["key"])
}

// registeredAt returns nil if every webhook is registered below a segment.
func registeredAt(t *testing.T, c *e2e.Cluster, want string) error {
	t.Helper()
	all := configsOf(t, c).get()
	if len(all) == 0 {
		return fmt.Errorf("nothing is registered")
	}
	for resource, u := range all {
		webhooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
		for _, w := range webhooks {
			url, _, _ := unstructured.NestedString(w.(map[string]any), "clientConfig", "url")
			if !strings.Contains(url, "/"+want+"/") {
				return fmt.Errorf("%s has the URL %s, want the segment %s", resource, url, want)
			}
		}
	}
	return nil
}

// TestNoRequestIsLostWhenThePathKeyIsReplaced deletes the Secret with the key that replicas without a CA share, and starts a replica
// before the others write the Secret again. Meanwhile the test creates pods, and no pod may be denied.
func TestNoRequestIsLostWhenThePathKeyIsReplaced(t *testing.T) {
	ring.Second(t, "a path is replaced under load, which takes a minute")
	c := suite.Lend(t)
	c.StartPostern(t, alwaysPull("--failure-policy=Fail")).Stop(t)
	dir := writeOtherCA(t)
	proxy := e2e.StartProxy(t)
	o := behind(proxy, alwaysPull("--failure-policy=Fail", "--shutdown-delay-duration=2s", "--tls-cert-file="+filepath.Join(dir, "tls.crt"),
		"--tls-private-key-file="+filepath.Join(dir, "tls.key"), "--ca-bundle-file="+filepath.Join(dir, "ca.crt")))
	c.Grant(t, o.Flags...)
	b := startBalancer(t, proxy)
	first, _ := b.startTwo(t, c, o)
	awaitCalled(t, c)
	lost := sharedSegment(t, c)
	if err := registeredAt(t, c, lost); err != nil {
		t.Fatal(err)
	}

	l := startLoad(t, c)
	if err := c.Admin.CoreV1().Secrets(e2e.PosternNamespace).Delete(t.Context(), segment.SecretName, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("Deleting the Secret: %v", err)
	}
	third := c.LaunchPostern(t, o)
	third.AwaitReady(t)
	b.add(third)
	if sharedSegment(t, c) == lost {
		t.Fatal("The third replica has not made another key")
	}
	l.awaitMore(t, 20)
	first.Stop(t)
	l.awaitMore(t, 20)
	if err := registeredAt(t, c, lost); err != nil {
		t.Errorf("While replicas may not know the other key: %v", err)
	}
	l.stop(t)

	l = startLoad(t, c)
	replaced := sharedSegment(t, c)
	e2e.Eventually(t, time.Minute, "the segment of the other key is registered", func(context.Context) error { return registeredAt(t, c, replaced) })
	l.awaitMore(t, 20)
	l.stop(t)

	if err := c.Admin.CoreV1().Secrets(e2e.PosternNamespace).Delete(t.Context(), segment.SecretName, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("Deleting the Secret: %v", err)
	}
	e2e.Eventually(t, time.Minute, "the Secret is written again", func(ctx context.Context) error {
		_, err := c.Admin.CoreV1().Secrets(e2e.PosternNamespace).Get(ctx, segment.SecretName, metav1.GetOptions{})
		return err
	})
	if got := sharedSegment(t, c); got != replaced {
		t.Errorf("Got the segment %s, want the key of before", got)
	}
}
