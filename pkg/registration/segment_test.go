package registration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/segment"
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
	if got, want := registeredPath(t, c), "/"+segment.Of(one)+"/pods/mutate"; got != want {
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
	if got, want := registeredPath(t, c), "/"+segment.Of(two)+"/pods/mutate"; got != want {
		t.Errorf("Got the path %s in the end, want %s", got, want)
	}
	digest, err := early.deployment.Digest(early.services)
	if err != nil || strings.Contains(digest, segment.Of(two)) {
		t.Errorf("Got the digest %s (%v), want one without a segment", digest, err)
	}
}

// TestRegisteredSegments covers what counts as a registered segment.
func TestRegisteredSegments(t *testing.T) {
	secret := segment.Of([]byte("key"))
	inCluster := Deployment{Namespace: "postern-system", Service: "postern", Port: 443}
	byURL := Deployment{Namespace: "postern-system", URL: "https://example.com:8443/"}
	service := func(name, path string) map[string]any {
		return map[string]any{"service": map[string]any{"namespace": "postern-system", "name": name, "path": path}}
	}
	for _, tt := range []struct {
		name   string
		d      Deployment
		client map[string]any
		canary bool
		want   []string
	}{
		{"service", inCluster, service("postern", "/"+secret+"/pods/mutate"), false, []string{secret}},
		{"the service of somebody else", inCluster, service("other", "/"+secret+"/pods/mutate"), false, nil},
		{"a canary", inCluster, service("postern", "/"+secret+"/canary/nonce/validate"), true, nil},
		{"no segment", inCluster, service("postern", "/pods/mutate"), false, []string{""}},
		{"no path", inCluster, service("postern", ""), false, nil},
		{"only a segment", inCluster, service("postern", "/"+secret), false, []string{secret}},
		{"a segment in the wrong place", inCluster, service("postern", "/pods/"+secret), false, []string{""}},
		{"URL", byURL, map[string]any{"url": "https://example.com:8443/" + secret + "/pods/mutate"}, false, []string{secret}},
		{"URL without a segment", byURL, map[string]any{"url": "https://example.com:8443/pods/mutate"}, false, []string{""}},
		{"the URL of somebody else", byURL, map[string]any{"url": "https://example.com/" + secret + "/pods/mutate"}, false, nil},
	} {
		u := other(mutatingKind, "postern-pods")
		if tt.canary {
			u.SetAnnotations(map[string]string{canaryAnnotation: ""})
		}
		u.Object["webhooks"] = []any{map[string]any{"name": "pods.postern.dev", "clientConfig": tt.client}}
		if got := tt.d.registeredSegments(u); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// registerAt makes another segment the registered one, as another replica does.
func (c *cluster) registerAt(t *testing.T, secret string) {
	t.Helper()
	c.edit(t, func(u *unstructured.Unstructured) {
		webhooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
		for _, w := range webhooks {
			path, _, _ := unstructured.NestedString(asMap(w), "clientConfig", "service", "path")
			_, path, _ = strings.Cut(path[1:], "/")
			_ = unstructured.SetNestedField(asMap(w), "/"+secret+"/"+path, "clientConfig", "service", "path")
		}
		u.Object["webhooks"] = webhooks
	})
}

// TestRegisteredSegmentIsAccepted covers a replica that learns of a registered segment whose key it does not know: before its canary is
// called, at once while it runs, and until some time after it has gone.
func TestRegisteredSegmentIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		r := newRegistrar(t, c, nil)
		r.bundle.(*bundle).keys = [][]byte{[]byte("key")}
		own, foreign := segment.Of([]byte("key")), segment.Of([]byte("other"))
		accepts := func() bool { return slices.Contains(r.segments.Accepted(), foreign) }
		mustSync(t, r, c)
		if accepts() {
			t.Error("It accepts a segment that nobody has registered")
		}
		c.registerAt(t, foreign)
		if _, err := r.survey(t.Context()); err != nil || !accepts() {
			t.Errorf("Got %v, want the registered segment accepted before the canary is called: %v", err, accepts())
		}
		c.registerAt(t, own)
		run(t, r, reachable)
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if accepts() {
			t.Error("It accepts a segment that is not registered any more")
		}
		c.registerAt(t, foreign)
		synctest.Wait()
		if !accepts() {
			t.Error("It does not accept what was registered at once")
		}
		time.Sleep(time.Minute)
		if !accepts() || registeredPath(t, c) != "/"+foreign+"/pods/mutate" {
			t.Errorf("Got the path %s, want the segment of another replica left alone and accepted", registeredPath(t, c))
		}
		time.Sleep(15 * time.Minute)
		if got := registeredPath(t, c); got != "/"+own+"/pods/mutate" {
			t.Errorf("Got the path %s, want the own segment registered in the end", got)
		}
	})
}

// delayWatches makes the watches of configurations late.
func (c *cluster) delayWatches(t *testing.T, lag time.Duration) {
	t.Helper()
	for _, gvr := range resources() {
		c.PrependWatchReactor(gvr.Resource, func(clienttesting.Action) (bool, watch.Interface, error) {
			prompt, err := c.Tracker().Watch(gvr, "")
			if err != nil {
				return true, nil, err
			}
			late := make(chan watch.Event, 100)
			go func() {
				for e := range prompt.ResultChan() {
					time.AfterFunc(lag, func() { late <- e })
				}
			}()
			return true, stoppable{prompt, late}, nil
		})
	}
}

// stoppable is a watch with other events.
type stoppable struct {
	watch.Interface

	events <-chan watch.Event
}

func (s stoppable) ResultChan() <-chan watch.Event { return s.events }

// TestSegmentsOfOtherModes covers a replica without a segment beside one that has a key, by a Service and by a URL: each leaves what the
// other has just registered alone, and both accept it.
func TestSegmentsOfOtherModes(t *testing.T) {
	for _, url := range []string{"", "https://example.com"} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, ourNamespace())
			change := func(d *Deployment, _ *router.AdmissionService) {
				if url != "" {
					d.Service, d.URL = "", url
				}
			}
			bare, keyed := newRegistrar(t, c, change), newRegistrar(t, c, change)
			mustSync(t, bare, c)
			keyed.bundle.(*bundle).keys = [][]byte{[]byte("key")}
			mustSync(t, keyed, c)
			before := len(c.applies())
			for range 5 {
				mustSync(t, bare, c)
				mustSync(t, keyed, c)
			}
			if got := len(c.applies()) - before; got != 0 {
				t.Errorf("%q: they applied %d times, want the registered paths left alone", url, got)
			}
			for _, r := range []*Registrar{bare, keyed} {
				for _, s := range []string{"", segment.Of([]byte("key"))} {
					if !slices.Contains(r.segments.Accepted(), s) {
						t.Errorf("%q: got %q, want both accepted", url, r.segments.Accepted())
					}
				}
			}
		})
	}
}

// sharing is a replica whose certificate is managed elsewhere, so that the replicas share a key.
type sharing struct {
	*Registrar

	ready atomic.Bool
	end   func()
}

// share starts a replica that is called by its URL, in the names of its own.
func share(t *testing.T, c *cluster, secrets kubernetes.Interface) *sharing {
	t.Helper()
	r := newRegistrar(t, c, func(d *Deployment, _ *router.AdmissionService) { d.Service, d.URL = "", "https://example.com" })
	var key *segment.Shared
	r.segments = segment.New(func() [][]byte { return key.Keys() })
	registered := func(ctx context.Context) ([]string, error) { return RegisteredSegments(ctx, c, r.deployment) }
	key = segment.Share(secrets.CoreV1().Secrets("postern-system"), "postern-system", r.segments, registered)
	r.reached = false
	p := &sharing{Registrar: r}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	var tasks sync.WaitGroup
	p.end = func() {
		p.ready.Store(false)
		cancel()
		tasks.Wait()
	}
	t.Cleanup(p.end)
	tasks.Go(func() {
		if err := key.Start(ctx); err != nil {
			t.Errorf("Starting: %v", err)
			return
		}
		tasks.Go(func() { _ = key.Run(ctx) })
		if err := r.Prepare(ctx); err != nil {
			t.Errorf("Preparing: %v", err)
			return
		}
		p.ready.Store(true)
		if err := r.Run(ctx, reachable); err != nil {
			t.Errorf("Running: %v", err)
		}
	})
	return p
}

// TestFaultsOfThePathKey causes the faults of the Secret with the key, and checks at each moment that every replica that is ready accepts
// every registered path. In the end, the segment of the stored key is registered, and nobody writes any more.
func TestFaultsOfThePathKey(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) { faultsOfThePathKey(t, seed) })
		if t.Failed() {
			t.Fatalf("Seed %d", seed)
		}
	}
}

func faultsOfThePathKey(t *testing.T, seed uint64) { //nolint:thelper // It is the test.
	random := rand.New(rand.NewPCG(seed, 1))
	c, secrets := newCluster(t, ourNamespace()), fake.NewClientset()
	events := 6
	if seed%2 == 1 { // Replicas with late watches do not learn in time of what is registered after all was deleted.
		c.delayWatches(t, 5*time.Second)
		events = 5
	}
	names := secrets.CoreV1().Secrets("postern-system")
	remove := func() {
		if err := names.Delete(t.Context(), segment.SecretName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	replicas := []*sharing{share(t, c, secrets), share(t, c, secrets), share(t, c, secrets)}
	var history []string
	registered := func() []string {
		var all []*unstructured.Unstructured
		for kind := range resources() {
			if u := c.registered(t, kind, "postern-pods"); u != nil {
				all = append(all, u)
			}
		}
		return replicas[0].deployment.registeredSegments(all...)
	}
	advance := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			synctest.Wait()
			for _, s := range registered() {
				for i, p := range replicas {
					if p.ready.Load() && !slices.Contains(p.segments.Accepted(), s) {
						t.Fatalf("After %q, replica %d does not accept the registered segment %s", history, i, s)
					}
				}
			}
		}
	}
	advance(2 * time.Minute)
	for range 2 + random.IntN(5) {
		i := random.IntN(len(replicas))
		switch event := random.IntN(events); event {
		case 0:
			history = append(history, "lost")
			remove()
		case 1:
			history = append(history, "replaced")
			remove()
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: segment.SecretName}, Data: map[string][]byte{"key": fmt.Appendf(nil, "%032d", random.Uint64())}}
			if _, err := names.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		case 2, 3:
			history = append(history, fmt.Sprintf("restart of %d", i))
			replicas[i].end()
			replicas[i] = share(t, c, secrets)
		case 4:
			history = append(history, "restart of all")
			for i, p := range replicas {
				p.end()
				replicas[i] = share(t, c, secrets)
			}
		case 5:
			history = append(history, "configurations deleted")
			c.deleteAll(t)
		}
		advance(time.Duration(random.IntN(30000)) * time.Millisecond)
	}
	advance(3 * time.Minute)
	before := len(c.applies())
	advance(6 * time.Minute)
	if n := len(c.applies()) - before; n > 0 {
		t.Errorf("After %q, there were %d more writes, want none", history, n)
	}
	secret, err := names.Get(t.Context(), segment.SecretName, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("After %q: %v", history, err)
	}
	if got, want := registered(), segment.Of(secret.Data["key"]); len(got) != 2 || got[0] != want || got[1] != want {
		t.Errorf("After %q, got the segments %q, want %s", history, got, want)
	}
}
