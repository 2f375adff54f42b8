package podsecurity

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// pages returns a client whose API server has so many pages, each with a pod of so many bytes at least.
func pages(count, size int) *fake.Clientset {
	client := fake.NewSimpleClientset()
	client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list, ok := action.(clienttesting.ListActionImpl)
		if !ok {
			return true, nil, errors.New("not a list")
		}
		page, _ := strconv.Atoi(list.ListOptions.Continue)
		out := &corev1.PodList{Items: []corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{Name: "pod-" + strconv.Itoa(page), Annotations: map[string]string{"size": strings.Repeat("x", size)}},
		}}}
		if page+1 < count {
			out.Continue = strconv.Itoa(page + 1)
		}
		return true, out, nil
	})
	return client
}

func TestAllPagesAreListed(t *testing.T) {
	pods, err := newPodLister(pages(3, 0)).ListPods(t.Context(), "shop")
	if err != nil || len(pods) != 3 || pods[2].Name != "pod-2" {
		t.Errorf("Got %d pods and error %v, want 3 in order", len(pods), err)
	}
}

func TestAListHasABound(t *testing.T) {
	client := pages(1000, maxBytes/10)
	if pods, err := newPodLister(client).ListPods(t.Context(), "shop"); err == nil {
		t.Errorf("Got %d pods, want an error", len(pods))
	}
	if n := len(client.Actions()); n > 10 {
		t.Errorf("Got %d pages, want 10 at most", n)
	}
}

func TestOneNamespaceIsListedAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPodLister(pages(1, 0))
		first, finish := context.WithCancel(t.Context())
		if _, err := l.ListPods(first, "shop"); err != nil {
			t.Fatalf("Listing: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.ListPods(ctx, "other"); !errors.Is(err, context.Canceled) {
			t.Errorf("Got error %v while the first list is in use, want that of the context", err)
		}
		finish()
		synctest.Wait()
		last, finish := context.WithCancel(t.Context())
		if _, err := l.ListPods(last, "other"); err != nil {
			t.Errorf("Listing after the first list is done: %v", err)
		}
		finish()
		synctest.Wait()
	})
}
