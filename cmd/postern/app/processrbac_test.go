package app

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/spf13/pflag"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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

	"github.com/postern-dev/postern/internal/segment"
	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admit/access"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	"github.com/postern-dev/postern/pkg/certs"
	"github.com/postern-dev/postern/pkg/registration"
	"github.com/postern-dev/postern/pkg/router"
)

// use is one API call of the process. name is empty for the calls whose name the authorizer does not see.
type use struct {
	access.Permission
	name string
}

// TestProcessRBAC compares the API calls of the process outside its plugins with its roles: it maintains a CA, calls its
// own Service, and registers and removes webhooks.
func TestProcessRBAC(t *testing.T) {
	ctx := admittest.Context(t)
	used := map[use]bool{}
	keepCA(t, ctx, used)
	register(t, ctx, used)
	r := rolesOf(t)
	if len(r.Plugins) > 0 {
		t.Errorf("Got the permissions %v of plugins, want none without plugins", r.Plugins)
	}
	grants := slices.Concat(r.Process, r.Local)
	for _, g := range grants {
		for _, p := range access.Of(access.Rules{g.PolicyRule}) {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(used)), func(u use) bool { return u.Permission == p }) {
				t.Errorf("The roles grant %v, which nothing uses", p)
			}
		}
	}
	for u := range used {
		if !slices.ContainsFunc(grants, u.isGranted) {
			t.Errorf("The roles lack %v for the name %q", u.Permission, u.name)
		}
	}
}

func (u use) isGranted(g grant) bool {
	return slices.Contains(access.Of(access.Rules{g.PolicyRule}), u.Permission) &&
		(len(g.ResourceNames) == 0 || slices.Contains(g.ResourceNames, u.name))
}

// rolesOf returns the roles for a command line.
func rolesOf(t *testing.T, args ...string) *roles {
	t.Helper()
	o := &options{Program: Program{Families: admissions.Families()}}
	sections, err := o.init()
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("rbac", pflag.ContinueOnError)
	for _, name := range sections.Order {
		flags.AddFlagSet(sections.FlagSets[name])
	}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	r, err := o.roles()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// recordCalls records the calls of a fake client. Server-side apply creates missing objects.
func recordCalls(used map[use]bool, actions []clienttesting.Action) {
	for _, a := range actions {
		u := use{Permission: access.Permission{Verb: a.GetVerb(), Group: a.GetResource().Group, Resource: a.GetResource().Resource}}
		switch a := a.(type) {
		case clienttesting.PatchAction:
			u.name = a.GetName()
			if a.GetPatchType() == types.ApplyPatchType {
				used[use{access.Permission{Verb: "create", Group: u.Group, Resource: u.Resource}, u.name}] = true
			}
		case clienttesting.DeleteAction:
			u.name = a.GetName()
		case clienttesting.GetAction:
			u.name = a.GetName()
		case clienttesting.UpdateAction:
			if m, err := meta.Accessor(a.GetObject()); err == nil && a.GetVerb() == "update" {
				u.name = m.GetName()
			}
		case clienttesting.ListAction:
			u.name, _ = a.GetListRestrictions().Fields.RequiresExactMatch("metadata.name")
		case clienttesting.WatchAction:
			u.name, _ = a.GetWatchRestrictions().Fields.RequiresExactMatch("metadata.name")
		}
		used[u] = true
	}
}

// keepCA creates a CA without a Secret, and with an empty Secret.
func keepCA(t *testing.T, ctx context.Context, used map[use]bool) { //nolint:revive // t first
	t.Helper()
	empty := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "postern-system", Name: "postern-ca"}}
	for _, client := range []*fake.Clientset{fake.NewClientset(), fake.NewClientset(empty)} {
		store := certs.NewSecretStore(client, "postern-system", "postern-ca")
		if _, err := certs.NewAuthority(ctx, store, certs.Options{DNSNames: []string{"postern"}, Clock: clock.RealClock{}}); err != nil {
			t.Fatalf("Making a CA: %v", err)
		}
		recordCalls(used, client.Actions())
	}
}

type noBundle struct{}

func (noBundle) Bundle() []byte                { return nil }
func (noBundle) ValidFor(string) (bool, error) { return true, nil }
func (noBundle) Changed() <-chan struct{}      { return nil }
func (noBundle) Held([][]byte) []byte          { return nil }

// register registers a service next to a disabled service, as a pod of a Deployment that has the API server call it,
// and leaves.
func register(t *testing.T, ctx context.Context, used map[use]bool) { //nolint:revive // t first
	t.Helper()
	stale := metav1.ObjectMeta{
		Name: "postern-events", Labels: map[string]string{registration.ManagedByLabel: registration.ManagedBy, registration.NamespaceLabel: "postern-system"},
		Annotations: map[string]string{registration.ClaimAnnotation: `{"deployment":"former","uid":"former-uid","revision":1}`},
	}
	narrowed := stale
	narrowed.Name = "postern-pods"
	webhook := admissionregistrationv1.MutatingWebhook{Name: "pods.postern.dev"}
	selecting := webhook
	selecting.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	owner := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: "uid", Controller: new(true)}}
	}
	dyn := dynamicfake.NewSimpleDynamicClient(scheme.Scheme, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "postern-system"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "postern-system", Name: "postern-1", OwnerReferences: owner("ReplicaSet", "postern-a")}},
		&appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "postern-system", Name: "postern-a", OwnerReferences: owner("Deployment", "postern"),
				Annotations: map[string]string{"deployment.kubernetes.io/revision": "1"},
			},
			Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "postern"}}},
		},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: stale}, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: stale},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: narrowed, Webhooks: []admissionregistrationv1.MutatingWebhook{selecting}})
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
	)
	d := registration.Deployment{Namespace: "postern-system", Service: "postern", Port: 1}
	if err := d.Probe(client, noBundle{}, clock.RealClock{})(ctx); err == nil {
		t.Error("Got an answer of a Service behind which nothing is")
	}
	decide := func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return nil }
	service := router.AdmissionService{
		Path: "/test", Mutate: decide, Validate: decide,
		MutatingConfig: &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "postern-pods"}, Webhooks: []admissionregistrationv1.MutatingWebhook{webhook},
		},
		ValidatingConfig: &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "postern-pods"}},
	}
	missing := router.AdmissionService{Path: "/missing", Mutate: decide, MutatingConfig: &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "postern-nodes"}}}
	fleet := registration.NewFleet(dyn, registration.FleetOptions{Namespace: "postern-system", Pod: "postern-1"})
	r := registration.NewRegistrar(dyn, d, []router.AdmissionService{service, missing}, noBundle{}, segment.New(func() [][]byte { return nil }), fleet, registration.NewMetrics(metrics.NewKubeRegistry()))
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := r.Prepare(ctx)
		if err == nil {
			break
		}
		if time.Since(start) > 30*time.Second { // It waits until other replicas have seen it.
			t.Fatalf("Preparing: %v", err)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
	done := make(chan error, 1)
	go func() {
		done <- r.Run(bounded, func(ctx context.Context) error {
			_ = r.Called(ctx) // The fake API server calls nobody.
			return nil
		})
	}()
	for range 4 { // The canary and three webhook configurations.
		select {
		case <-applied:
		case <-bounded.Done():
			t.Error("Got no webhook registered")
		}
	}
	cancel()
	if err := errors.Join(<-done, r.Leave(ctx, true)); err != nil {
		t.Errorf("Registering and leaving: %v", err)
	}
	// The recorder of events creates an Event, and patches it when it repeats.
	used[use{Permission: access.Permission{Verb: "create", Resource: "events"}}] = true
	used[use{Permission: access.Permission{Verb: "patch", Resource: "events"}}] = true
	recordCalls(used, client.Actions())
	recordCalls(used, dyn.Actions())
}
