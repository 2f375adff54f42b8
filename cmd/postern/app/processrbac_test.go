package admissions

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/certs"
	"github.com/postern-dev/postern/pkg/router"
	"github.com/postern-dev/postern/pkg/router/rollout"
)

// TestProcessRBAC compares the API calls of the process outside its plugins with its role: it maintains a CA,
// calls its own Service, and registers and removes webhooks.
func TestProcessRBAC(t *testing.T) {
	ctx := admittest.Context(t)
	used := map[permission]bool{}
	keepCA(t, ctx, used)
	register(t, ctx, used)
	granted := map[permission]bool{}
	for _, r := range []struct{ kind, name string }{{"ClusterRole", "postern"}, {"Role", "postern"}} {
		for _, rule := range role(t, r.kind, r.name).Rules {
			for _, p := range permissions(rule) {
				granted[p] = true
			}
		}
	}
	if diff := cmp.Diff(sorted(granted), sorted(used), cmp.AllowUnexported(permission{})); diff != "" {
		t.Errorf("The roles postern of installer/rbac.yaml are not what is used (- granted, + used):\n%s", diff)
	}
}

func sorted(m map[permission]bool) []permission {
	return slices.SortedFunc(maps.Keys(m), func(a, b permission) int {
		return slices.Compare([]string{a.group, a.resource, a.verb}, []string{b.group, b.resource, b.verb})
	})
}

// record records the calls of a fake client. Server-side apply creates missing objects.
func record(used map[permission]bool, actions []clienttesting.Action) {
	for _, a := range actions {
		used[permissionOf(a)] = true
		if p, ok := a.(clienttesting.PatchAction); ok && p.GetPatchType() == types.ApplyPatchType {
			used[permission{"create", a.GetResource().Group, a.GetResource().Resource}] = true
		}
	}
}

// keepCA creates a CA without a Secret, and with an empty Secret.
func keepCA(t *testing.T, ctx context.Context, used map[permission]bool) { //nolint:revive // t first
	t.Helper()
	empty := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "postern-system", Name: "postern-ca"}}
	for _, client := range []*fake.Clientset{fake.NewClientset(), fake.NewClientset(empty)} {
		store := certs.NewSecretStore(client, "postern-system", "postern-ca")
		if _, err := certs.NewAuthority(ctx, store, certs.Options{DNSNames: []string{"postern"}, Clock: clock.RealClock{}}); err != nil {
			t.Fatalf("Making a CA: %v", err)
		}
		if err := store.Delete(ctx); err != nil {
			t.Fatalf("Removing the CA: %v", err)
		}
		record(used, client.Actions())
	}
}

type noBundle struct{}

func (noBundle) Bundle() []byte           { return nil }
func (noBundle) PathKeys() [][]byte       { return nil }
func (noBundle) Changed() <-chan struct{} { return nil }
func (noBundle) Held([][]byte) []byte     { return nil }

// register registers a service next to a disabled service, as a pod of a Deployment that has the API server call it,
// and leaves.
func register(t *testing.T, ctx context.Context, used map[permission]bool) { //nolint:revive // t first
	t.Helper()
	stale := metav1.ObjectMeta{Name: "postern-stale", Labels: map[string]string{router.ManagedByLabel: router.ManagedBy, router.NamespaceLabel: "postern-system"}}
	dyn := dynamicfake.NewSimpleDynamicClient(scheme.Scheme, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "postern-system"}},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: stale}, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: stale})
	applied := make(chan struct{}, 16)
	dyn.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if p, ok := a.(clienttesting.PatchAction); ok && p.GetPatchType() == types.ApplyPatchType {
			applied <- struct{}{}
			return true, &unstructured.Unstructured{}, nil
		}
		return false, nil, nil
	})
	// No server listens there; the test needs only the read of the Service.
	client := fake.NewClientset(
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "postern-system", Name: "postern"}, Spec: corev1.ServiceSpec{ClusterIP: "127.0.0.1"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "postern-system", Name: "postern-1", OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "postern", Controller: new(true)}}}},
	)
	d := router.Deployment{Namespace: "postern-system", Service: "postern", Port: 1}
	if err := d.Probe(client, noBundle{})(ctx); err == nil {
		t.Error("Got an answer of a Service behind which nothing is")
	}
	decide := func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return nil }
	service := router.AdmissionService{
		Path: "/test", Mutate: decide, Validate: decide,
		MutatingConfig:   &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "postern-test"}},
		ValidatingConfig: &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "postern-test"}},
	}
	replicas := rollout.New(rollout.Options{Client: client, Namespace: "postern-system", Name: "postern-1", Pod: "postern-1", Serves: []string{"/test"}})
	r := router.NewRegistrar(dyn, d, []router.AdmissionService{service}, noBundle{}, replicas, router.NewMetrics(metrics.NewKubeRegistry()))
	if err := r.Prepare(ctx); err != nil {
		t.Fatalf("Preparing: %v", err)
	}
	bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
	done := make(chan error, 1)
	watched := make(chan error, 1)
	go func() { watched <- replicas.Run(bounded) }()
	canary := r.Canary()
	go func() {
		done <- r.Run(bounded, func(ctx context.Context) error {
			_ = canary(ctx) // The fake API server calls nobody.
			return nil
		})
	}()
	for range 3 { // The canary and two webhook configurations.
		select {
		case <-applied:
		case <-bounded.Done():
			t.Error("Got no webhook registered")
		}
	}
	cancel()
	if err := errors.Join(<-done, <-watched, r.Leave(ctx, true), replicas.Forget(ctx)); err != nil {
		t.Errorf("Registering and leaving: %v", err)
	}
	// The recorder of events creates an Event, and patches it when it repeats.
	used[permission{"create", "", "events"}] = true
	used[permission{"patch", "", "events"}] = true
	record(used, client.Actions())
	record(used, dyn.Actions())
}
