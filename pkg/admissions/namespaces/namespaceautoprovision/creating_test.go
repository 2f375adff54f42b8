package namespaceautoprovision

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/pkg/admit"
)

// cluster is an API server in which the creation of a namespace takes until proceed is closed, and its cache.
type cluster struct {
	typedcorev1.NamespaceInterface

	cache   cache.Indexer
	created atomic.Int64
	proceed chan struct{}
}

func (c *cluster) Create(_ context.Context, ns *corev1.Namespace, _ metav1.CreateOptions) (*corev1.Namespace, error) {
	c.created.Add(1)
	<-c.proceed
	return ns, c.cache.Add(ns)
}

func newPlugin() (*plugin, *cluster) {
	c := &cluster{cache: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), proceed: make(chan struct{})}
	return &plugin{corev1listers.NewNamespaceLister(c.cache), c, semaphore.NewWeighted(maxCreating)}, c
}

// send sends a request for an object in a namespace, and returns when it waits or has ended.
func send(ctx context.Context, p *plugin, namespace string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		ended <- p.mutate(ctx, &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{Namespace: namespace}})
	}()
	synctest.Wait()
	return ended
}

// queued is an account that knows whether its request waits for others.
type queued struct {
	reads.Detached

	waits bool
}

func (q *queued) Queued() { q.waits = true }

// TestCreationsAreBounded has more new namespaces than may be created at a time. One of those that wait hangs up.
func TestCreationsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPlugin()
		var all []<-chan error
		accounts := make([]queued, 2*maxCreating)
		for i := range accounts {
			all = append(all, send(reads.NewContext(t.Context(), &accounts[i]), p, fmt.Sprintf("shop-%d", i)))
		}
		for i := range accounts {
			if !accounts[i].waits {
				t.Errorf("Request %d does not say that it waits for others", i)
			}
		}
		if got := c.created.Load(); got != maxCreating {
			t.Errorf("Got %d creations at a time, want %d", got, maxCreating)
		}
		ctx, hangUp := context.WithCancel(t.Context())
		canceled := send(ctx, p, "canceled")
		hangUp()
		err := <-canceled
		if _, denied := errors.AsType[*admit.Denial](err); denied || !errors.Is(err, context.Canceled) {
			t.Errorf("Got %v, want that the request was canceled", err)
		}
		close(c.proceed)
		for _, ended := range all {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if got := c.created.Load(); got != 2*maxCreating {
			t.Errorf("Got %d creations, want one for each namespace", got)
		}
	})
}

// TestThoseThatWaitFindTheNamespace has many requests for the same new namespace.
func TestThoseThatWaitFindTheNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPlugin()
		var all []<-chan error
		for range 5 * maxCreating {
			all = append(all, send(t.Context(), p, "shop"))
		}
		close(c.proceed)
		for _, ended := range all {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if got := c.created.Load(); got != maxCreating {
			t.Errorf("Got %d creations, want only those of the requests that did not wait", got)
		}
	})
}
