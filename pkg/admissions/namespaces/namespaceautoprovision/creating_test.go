package namespaceautoprovision

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/pkg/admit"
)

// atATime is how many namespaces are created at a time according to README.md, and mayWait how many requests wait for that.
const atATime, mayWait = 8, 100

// cluster is an API server in which the creation of a namespace takes until proceed is closed, and then fails with err, and its
// cache.
type cluster struct {
	typedcorev1.NamespaceInterface

	cache   cache.Indexer
	created atomic.Int64
	proceed chan struct{}
	err     error
}

func (c *cluster) Create(ctx context.Context, ns *corev1.Namespace, _ metav1.CreateOptions) (*corev1.Namespace, error) {
	c.created.Add(1)
	select {
	case <-c.proceed:
		if c.err != nil {
			return nil, c.err
		}
		return ns, c.cache.Add(ns)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func start() (*plugin, *cluster) {
	c := &cluster{cache: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), proceed: make(chan struct{})}
	return newPlugin(corev1listers.NewNamespaceLister(c.cache), c), c
}

// send sends a request for an object in a namespace, and returns when it waits or has ended.
func send(ctx context.Context, p *plugin, namespace string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		ended <- p.mutate(ctx, &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{Namespace: namespace, Name: "settings"}})
	}()
	synctest.Wait()
	return ended
}

// TestCreationsAreBounded has more new namespaces than may be created at a time.
func TestCreationsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := start()
		var all []<-chan error
		for i := range 2 * atATime {
			all = append(all, send(t.Context(), p, fmt.Sprintf("shop-%d", i)))
		}
		if got := c.created.Load(); got != atATime {
			t.Errorf("Got %d creations at a time, want %d", got, atATime)
		}
		close(c.proceed)
		for _, ended := range all {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if got := c.created.Load(); got != 2*atATime {
			t.Errorf("Got %d creations, want one for each namespace", got)
		}
	})
}

// TestThoseThatWaitFindTheNamespace has many requests for the same new namespace.
func TestThoseThatWaitFindTheNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := start()
		var all []<-chan error
		for range 5 * atATime {
			all = append(all, send(t.Context(), p, "shop"))
		}
		close(c.proceed)
		for _, ended := range all {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if got := c.created.Load(); got != atATime {
			t.Errorf("Got %d creations, want only those of the requests that did not wait", got)
		}
	})
}

// TestACreationThatHangsIsDenied has webhooks for namespaces that do not answer. The requests must be denied before they end,
// because then the failure policy would admit those of the control plane, which users make send them.
func TestACreationThatHangsIsDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := start()
		long, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var hanging, waiting []<-chan error
		for range atATime {
			hanging = append(hanging, send(long, p, "shop"))
		}
		for range mayWait {
			waiting = append(waiting, send(short, p, "shop"))
		}
		const busy = "namespace shop was not created: too many changes of this kind are being made"
		begin := time.Now()
		denied(t, <-send(short, p, "shop"), http.StatusTooManyRequests, busy)
		if time.Since(begin) > 0 {
			t.Errorf("A request waits while %d others do, want it denied at once", mayWait)
		}
		for _, ended := range waiting {
			denied(t, <-ended, http.StatusTooManyRequests, busy)
		}
		if short.Err() != nil {
			t.Error("A request that waited is denied too late")
		}
		for _, ended := range hanging {
			denied(t, <-ended, http.StatusForbidden, "forbidden: there is no answer of the API server")
		}
		if long.Err() != nil || c.created.Load() != atATime {
			t.Errorf("Got %d creations and the end %v of the requests, want %d, and denials in time", c.created.Load(), long.Err(), atATime)
		}
	})
}

// TestADenialWithTheCodeOfAFailure has a webhook choose the reason and the code. kube-apiserver returns its error as it is, but a
// webhook cannot deny with a code of 500.
func TestADenialWithTheCodeOfAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := start()
		c.err = &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden, Code: http.StatusInternalServerError, Message: "broken"}}
		close(c.proceed)
		denied(t, <-send(t.Context(), p, "shop"), http.StatusForbidden, "forbidden: broken")
	})
}

// TestACreationWithoutAnAnswer has a namespace that exists although its creation was not answered.
func TestACreationWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := start()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ended := send(ctx, p, "shop")
		if err := c.cache.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("Got %v, want no error", err)
		}
	})
}

func denied(t *testing.T, err error, code int32, message string) {
	t.Helper()
	d, ok := errors.AsType[*admit.Denial](err)
	if !ok || d.Status().Code != code || !strings.Contains(d.Status().Message, message) {
		t.Errorf("Got %v, want a denial with code %d and %q", err, code, message)
	}
}
