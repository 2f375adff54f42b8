package registration

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/postern-dev/postern/pkg/router"
)

func registeredPath(t *testing.T, c *cluster) string {
	t.Helper()
	webhooks, _, _ := unstructured.NestedSlice(c.registered(t, mutatingKind, "postern-pods").Object, "webhooks")
	path, _, _ := unstructured.NestedString(asMap(webhooks[0]), "clientConfig", "service", "path")
	return path
}

// TestReplacedPathKey covers replicas that learn of a new key one after the other, while each accepts both keys.
func TestReplacedPathKey(t *testing.T) {
	c := newCluster(t, ourNamespace())
	early, late := newRegistrar(t, c, nil), newRegistrar(t, c, nil)
	one, two := []byte("one"), []byte("two")
	for _, r := range []*Registrar{early, late} {
		r.bundle.(*bundle).keys = [][]byte{one, two}
		mustSync(t, r, c)
	}
	if got, want := registeredPath(t, c), "/"+router.Segment(one)+"/pods/mutate"; got != want {
		t.Fatalf("Got the path %s, want %s", got, want)
	}
	before := len(c.applies())
	early.bundle.(*bundle).keys = [][]byte{two, one}
	for range 5 {
		mustSync(t, early, c)
		mustSync(t, late, c)
	}
	if got := len(c.applies()) - before; got != 2 {
		t.Errorf("Applied %d times, want once for each of the two configurations", got)
	}
	late.bundle.(*bundle).keys, early.bundle.(*bundle).keys = [][]byte{two}, [][]byte{two}
	mustSync(t, early, c)
	mustSync(t, late, c)
	if got, want := registeredPath(t, c), "/"+router.Segment(two)+"/pods/mutate"; got != want {
		t.Errorf("Got the path %s in the end, want %s", got, want)
	}
	digest, err := early.deployment.Digest(early.services)
	if err != nil || strings.Contains(digest, router.Segment(two)) {
		t.Errorf("Got the digest %s (%v), want one without a segment", digest, err)
	}
}
