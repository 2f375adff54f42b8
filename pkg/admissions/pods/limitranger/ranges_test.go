package limitranger_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/featuregate"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/limitranger"
	"github.com/postern-dev/postern/pkg/admit"
)

// limits denies every pod without a cpu limit.
func limits() *corev1.LimitRange {
	return &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "limits", Namespace: "shop"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}}},
	}
}

// cluster has a LimitRange in the namespace shop that the informer has not seen.
type cluster struct {
	client    kubernetes.Interface
	informers informers.SharedInformerFactory
	clock     *clocktesting.FakeClock
	// lists counts the live lists. Each list waits for hold and returns the error of
	// fail.
	lists atomic.Int32
	hold  func()
	fail  error

	plugin admit.Handler
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	client := fake.NewSimpleClientset(limits())
	c := newClusterOf(t, client)
	client.PrependReactor("list", "limitranges", func(clienttesting.Action) (bool, runtime.Object, error) {
		c.lists.Add(1)
		c.hold()
		return c.fail != nil, nil, c.fail
	})
	return c
}

func newClusterOf(t *testing.T, client kubernetes.Interface) *cluster {
	t.Helper()
	c := &cluster{
		client: client, informers: informers.NewSharedInformerFactory(client, 0), hold: func() {},
		clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
	}
	gate := featuregate.NewFeatureGate()
	if err := gate.Add(limitranger.Plugin.Features); err != nil {
		t.Fatalf("Adding the feature gates: %v", err)
	}
	var err error
	c.plugin, err = limitranger.Plugin.New(admit.Deps{Go: func(func(context.Context)) {}, Client: client, Informers: c.informers, Clock: c.clock, Features: gate}, nil)
	if err != nil {
		t.Fatalf("Making the plugin: %v", err)
	}
	return c
}

// create sends the creation of a pod without limits.
func (c *cluster) create(ctx context.Context, namespace string) error {
	return c.plugin.Validate(ctx, &admit.Request{
		AdmissionRequest: &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: namespace, Name: "web",
		},
		Object: &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}},
	})
}

func (c *cluster) wantLists(t *testing.T, want int32) {
	t.Helper()
	if got := c.lists.Load(); got != want {
		t.Errorf("Got %d live lists, want %d", got, want)
	}
}

func wantDenied(t *testing.T, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("Got error %v, want a denial", err)
	}
}

func TestAnswersOfTheAPIServerAreRememberedFor30Seconds(t *testing.T) {
	c := newCluster(t)
	for range 2 {
		wantDenied(t, c.create(t.Context(), "shop"))
		c.wantLists(t, 1)
		c.clock.Step(30 * time.Second)
	}
	c.clock.Step(time.Second)
	wantDenied(t, c.create(t.Context(), "shop"))
	c.wantLists(t, 2)
	for range 2 {
		if err := c.create(t.Context(), "bank"); err != nil {
			t.Errorf("Got error %v in a namespace without limit ranges, want none", err)
		}
		c.wantLists(t, 3)
	}
}

func TestWhatWasRememberedDoesNotOutliveTheLimitRange(t *testing.T) {
	c := newCluster(t)
	wantDenied(t, c.create(t.Context(), "shop"))
	// The informer sees the LimitRange added and deleted.
	store := c.informers.Core().V1().LimitRanges().Informer().GetStore()
	if err := store.Add(limits()); err != nil {
		t.Fatalf("Adding the limit range to the cache: %v", err)
	}
	wantDenied(t, c.create(t.Context(), "shop"))
	if err := store.Delete(limits()); err != nil {
		t.Fatalf("Deleting the limit range from the cache: %v", err)
	}
	if err := c.client.CoreV1().LimitRanges("shop").Delete(t.Context(), "limits", metav1.DeleteOptions{}); err != nil {
		t.Fatalf("Deleting the limit range: %v", err)
	}
	if err := c.create(t.Context(), "shop"); err != nil {
		t.Errorf("Got error %v after the limit range was deleted, want none", err)
	}
}

func TestRequestsAtTheSameTimeShareOneList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		release := make(chan struct{})
		c.hold = func() { <-release }
		var requests sync.WaitGroup
		for range 5 {
			requests.Go(func() { wantDenied(t, c.create(t.Context(), "shop")) })
		}
		synctest.Wait()
		close(release)
		requests.Wait()
		c.wantLists(t, 1)
	})
}

// TestAListGoesOnWithoutTheRequestThatBeganIt uses an HTTP server, because
// client-go's fakes ignore the context.
func TestAListGoesOnWithoutTheRequestThatBeganIt(t *testing.T) {
	asked, release := make(chan struct{}, 2), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked <- struct{}{}
		select {
		case <-release:
		case <-req.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(corev1.LimitRangeList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "LimitRangeList"}, Items: []corev1.LimitRange{*limits()},
		})
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatalf("Making a client: %v", err)
	}
	c := newClusterOf(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error)
	go func() { answer <- c.create(ctx, "shop") }()
	<-asked
	cancel()
	if err := <-answer; !errors.Is(err, context.Canceled) || apierrors.IsForbidden(err) {
		t.Errorf("Got error %v after the request was canceled, want it to say so and no denial", err)
	}
	close(release)
	wantDenied(t, c.create(t.Context(), "shop"))
	if len(asked) > 0 {
		t.Error("Got a second list, want the first one to go on")
	}
}

func TestAListThatFailsIsNoDenialAndNotRemembered(t *testing.T) {
	c := newCluster(t)
	c.fail = apierrors.NewServiceUnavailable("the storage is away")
	if err := c.create(t.Context(), "shop"); !errors.Is(err, c.fail) || apierrors.IsForbidden(err) {
		t.Errorf("Got error %v, want %v and no denial", err, c.fail)
	}
	c.fail = nil
	wantDenied(t, c.create(t.Context(), "shop"))
}
