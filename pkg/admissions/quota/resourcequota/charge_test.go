package resourcequota_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/pkg/admissions/quota/resourcequota"
	"github.com/postern-dev/postern/pkg/admit"
)

// store is the API server's storage of quotas, with resource versions and conflicts, which the fake client lacks.
type store struct {
	mu      sync.Mutex
	version int
	quotas  map[string]*corev1.ResourceQuota
	// writes counts the successful updates.
	writes int
	// before, unless nil, is called before each update.
	before func(*corev1.ResourceQuota) error
}

func newStore(quotas ...*corev1.ResourceQuota) *store {
	s := &store{quotas: map[string]*corev1.ResourceQuota{}}
	for _, q := range quotas {
		s.version++
		q.ResourceVersion = strconv.Itoa(s.version)
		s.quotas[q.Namespace+"/"+q.Name] = q
	}
	return s
}

func (s *store) update(a clienttesting.Action) (bool, kruntime.Object, error) {
	q := a.(clienttesting.UpdateAction).GetObject().(*corev1.ResourceQuota).DeepCopy()
	if s.before != nil {
		if err := s.before(q); err != nil {
			return true, nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := q.Namespace + "/" + q.Name
	switch current := s.quotas[key]; {
	case current == nil:
		return true, nil, apierrors.NewNotFound(corev1.Resource("resourcequotas"), q.Name)
	case current.ResourceVersion != q.ResourceVersion:
		return true, nil, apierrors.NewConflict(corev1.Resource("resourcequotas"), q.Name, errors.New("changed"))
	}
	s.version++
	s.writes++
	q.ResourceVersion = strconv.Itoa(s.version)
	s.quotas[key] = q
	return true, q.DeepCopy(), nil
}

func (s *store) list(a clienttesting.Action) (bool, kruntime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &corev1.ResourceQuotaList{}
	for _, q := range s.quotas {
		if a.GetNamespace() == "" || q.Namespace == a.GetNamespace() {
			out.Items = append(out.Items, *q.DeepCopy())
		}
	}
	return true, out, nil
}

func (s *store) used(t *testing.T, key, name string) int64 {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	quantity := s.quotas[key].Status.Used[corev1.ResourceName(name)]
	return quantity.Value()
}

// replica returns one Postern in the mode charge. Its cache is never updated, so all that it learns comes from its own
// writes and reads.
func (s *store) replica(t *testing.T) admit.Func {
	t.Helper()
	client := fake.NewSimpleClientset()
	client.PrependReactor("update", "resourcequotas", s.update)
	client.PrependReactor("list", "resourcequotas", s.list)
	features := featuregate.NewFeatureGate()
	if err := features.Add(resourcequota.Plugin.Features); err != nil {
		t.Fatal(err)
	}
	d := admit.Deps{Client: client, Informers: informers.NewSharedInformerFactory(client, 0), Features: features, Clock: clock.RealClock{}}
	h, err := resourcequota.Plugin.New(d, []byte("{apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, mode: charge}"))
	if err != nil {
		t.Fatalf("Making the plugin: %v", err)
	}
	d.Informers.StartWithContext(t.Context())
	d.Informers.WaitForCacheSync(t.Context().Done())
	t.Cleanup(d.Informers.Shutdown)
	return h.Validate
}

func quotaOf(namespace, name string, hard int64, resources ...corev1.ResourceName) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: corev1.ResourceQuotaStatus{Hard: corev1.ResourceList{}, Used: corev1.ResourceList{}}}
	for _, r := range resources {
		q.Status.Hard[r], q.Status.Used[r] = *resource.NewQuantity(hard, resource.DecimalSI), resource.Quantity{}
	}
	return q
}

// newPod is a request for a pod.
func newPod(namespace, name string) *admit.Request {
	return &admit.Request{
		AdmissionRequest: &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: namespace, Name: name,
			Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		},
		Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
	}
}

// creations sends requests of several clients through several replicas. It returns how many were admitted.
func creations(t *testing.T, replicas []admit.Func, clients, each int, request func(client, i int) *admit.Request) int64 {
	t.Helper()
	var admitted atomic.Int64
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for i := range each {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				err := replicas[(c+i)%len(replicas)](ctx, request(c, i))
				cancel()
				if err == nil {
					admitted.Add(1)
				} else if !admit.IsDenial(err) || !strings.Contains(err.Error(), "exceeded quota") {
					t.Errorf("Got the error %v, want none but a quota that is exceeded", err)
				}
			}
		})
	}
	all.Wait()
	return admitted.Load()
}

// TestReplicasAdmitTogetherWhatTheQuotaAllows has 16 clients create far more pods than the quota allows, through three
// replicas that do not see each other's writes.
func TestReplicasAdmitTogetherWhatTheQuotaAllows(t *testing.T) {
	const hard = 100
	s := newStore(quotaOf("shop", "team", hard, "pods"), quotaOf("shop", "other", hard+50, "count/pods"))
	replicas := []admit.Func{s.replica(t), s.replica(t), s.replica(t)}
	got := creations(t, replicas, 16, 25, func(c, i int) *admit.Request { return newPod("shop", fmt.Sprintf("web-%d-%d", c, i)) })
	if used := s.used(t, "shop/team", "pods"); got != hard || used != hard {
		t.Errorf("Got %d pods, and %d in the quota, want %d", got, used, hard)
	}
	// A pod that lost the race for one quota may have been charged to the other: never too little.
	if used := s.used(t, "shop/other", "count/pods"); used < hard || used > hard+50 {
		t.Errorf("Got %d pods in the other quota, want %d at least and no more than it allows", used, hard)
	}
}

// TestBurstCostsFewWrites checks that requests that wait for a write are charged together.
func TestBurstCostsFewWrites(t *testing.T) {
	s := newStore(quotaOf("shop", "team", 1000, "pods"))
	s.before = func(*corev1.ResourceQuota) error { time.Sleep(20 * time.Millisecond); return nil }
	got := creations(t, []admit.Func{s.replica(t)}, 50, 4, func(c, i int) *admit.Request { return newPod("shop", fmt.Sprintf("web-%d-%d", c, i)) })
	if used := s.used(t, "shop/team", "pods"); got != 200 || used != 200 {
		t.Errorf("Got %d pods, and %d in the quota, want 200", got, used)
	}
	if s.writes > 50 {
		t.Errorf("Got %d writes for 200 pods, want few", s.writes)
	}
}

// TestManyNamespacesLeaveNothing charges quotas in many namespaces. No goroutine remains.
func TestManyNamespacesLeaveNothing(t *testing.T) {
	const namespaces = 300
	var quotas []*corev1.ResourceQuota
	for i := range namespaces {
		quotas = append(quotas, quotaOf(fmt.Sprint("ns-", i), "team", 1, "pods"))
	}
	s := newStore(quotas...)
	replica := s.replica(t)
	before := runtime.NumGoroutine()
	// Two requests for each namespace.
	const clients, each = 15, 2 * namespaces / 15
	got := creations(t, []admit.Func{replica}, clients, each, func(c, i int) *admit.Request {
		return newPod(fmt.Sprint("ns-", (c*each+i)%namespaces), fmt.Sprintf("web-%d-%d", c, i))
	})
	if got != namespaces {
		t.Errorf("Got %d pods in %d namespaces with room for one each", got, namespaces)
	}
	if after := runtime.NumGoroutine(); after > before+5 {
		t.Errorf("Got %d goroutines, before it were %d", after, before)
	}
}

// TestHungAPIServer has the API server not answer to a write. Every request ends at its own deadline, and what comes
// after is served.
func TestHungAPIServer(t *testing.T) {
	s := newStore(quotaOf("shop", "team", 10, "pods"))
	hung := make(chan struct{})
	var answers atomic.Bool
	s.before = func(*corev1.ResourceQuota) error {
		if answers.Load() {
			return nil
		}
		<-hung
		return apierrors.NewTimeoutError("hung", 0)
	}
	replica := s.replica(t)
	// The fake client ignores deadlines: the request that writes returns with the API server.
	go func() { _ = replica(t.Context(), newPod("shop", "writer")) }()
	time.Sleep(50 * time.Millisecond)
	start := time.Now()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if err := replica(ctx, newPod("shop", fmt.Sprint("web-", i))); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Got %v, want the deadline", err)
			}
		})
	}
	all.Wait()
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("The requests took %v, want their deadline of 200ms", took)
	}
	answers.Store(true)
	close(hung)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := replica(ctx, newPod("shop", "after")); err != nil {
		t.Errorf("Got %v after the API server answers again, want none", err)
	}
	if used := s.used(t, "shop/team", "pods"); used != 1 {
		t.Errorf("Got %d pods in the quota, want 1: nobody waits for the others any more", used)
	}
}

// TestWriterThatIsGone has the client of the request that writes hang up. The requests that wait for the same write
// are charged.
func TestWriterThatIsGone(t *testing.T) {
	s := newStore(quotaOf("shop", "team", 10, "pods"))
	writing, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.before = func(*corev1.ResourceQuota) error {
		once.Do(func() { close(writing); <-proceed })
		return nil
	}
	replica := s.replica(t)
	ctx, hangUp := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- replica(ctx, newPod("shop", "first")) }()
	<-writing
	second := make(chan error, 1)
	go func() { second <- replica(t.Context(), newPod("shop", "second")) }()
	hangUp()
	close(proceed)
	if err := <-second; err != nil {
		t.Errorf("Got %v for the request that waited, want none", err)
	}
	<-first
	if used := s.used(t, "shop/team", "pods"); used != 2 {
		t.Errorf("Got %d pods in the quota, want 2", used)
	}
}

// TestStaleCacheAdmitsNothing has another replica fill the quota. The cache does not show it.
func TestStaleCacheAdmitsNothing(t *testing.T) {
	s := newStore(quotaOf("shop", "team", 1, "pods"))
	stale, other := s.replica(t), s.replica(t)
	if err := other(t.Context(), newPod("shop", "a")); err != nil {
		t.Fatalf("Got %v, want the first pod admitted", err)
	}
	err := stale(t.Context(), newPod("shop", "b"))
	if !admit.IsDenial(err) {
		t.Errorf("Got %v, want a denial", err)
	}
	// The denial has taught the replica what is used.
	s.mu.Lock()
	version := s.version
	s.mu.Unlock()
	_ = stale(t.Context(), newPod("shop", "c"))
	if s.version != version {
		t.Error("Got another write for a pod that does not fit")
	}
}

// TestChargeNeedsAnAPIServerWithoutQuotas checks that no object is charged twice.
func TestChargeNeedsAnAPIServerWithoutQuotas(t *testing.T) {
	for plugins, want := range map[string]bool{"LimitRanger,ResourceQuota": false, "LimitRanger": true, "": true} {
		client := fake.NewSimpleClientset()
		d := admit.Deps{Client: client, Informers: informers.NewSharedInformerFactory(client, 0), Flags: map[string]string{"api-server-plugins": plugins}}
		_, err := resourcequota.Plugin.New(d, []byte("{apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, mode: charge}"))
		if (err == nil) != want {
			t.Errorf("With %q in the API server: got the error %v", plugins, err)
		}
	}
}
