package intree_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/intree"
)

// wanting is a plugin that requests every dependency.
type wanting struct {
	stamper

	got  map[string]any
	auth authorizer.Authorizer
}

func (w *wanting) SetExternalKubeClientSet(c kubernetes.Interface) { w.got["client"] = c }
func (w *wanting) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	w.got["informers"] = f
}
func (w *wanting) SetDynamicClient(d dynamic.Interface)          { w.got["dynamic"] = d }
func (w *wanting) SetRESTMapper(m meta.RESTMapper)               { w.got["mapper"] = m }
func (w *wanting) InspectFeatureGates(g featuregate.FeatureGate) { w.got["features"] = g }
func (w *wanting) SetDrainedNotification(c <-chan struct{})      { w.got["drained"] = c != nil }
func (w *wanting) SetAuthorizer(a authorizer.Authorizer)         { w.auth = a }
func (w *wanting) ValidateInitialization() error                 { w.got["validated"] = true; return nil }

func (w *wanting) SetUnconditionalAuthorizer(a authorizer.UnconditionalAuthorizer) {
	w.got["unconditional"] = a != nil
}

func TestPluginsGetWhatTheyWant(t *testing.T) {
	client := fake.NewClientset()
	d := admit.Deps{
		Client: client, Dynamic: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), Informers: informers.NewSharedInformerFactory(client, 0),
		RESTMapper: meta.NewDefaultRESTMapper(nil), Features: featuregate.NewFeatureGate(),
	}
	w := &wanting{got: map[string]any{}}
	if _, err := intree.Plugin("Wanting", pods, made(w)).New(d, nil); err != nil {
		t.Fatalf("Making the plugin: %v", err)
	}
	want := map[string]any{
		"client": d.Client, "dynamic": d.Dynamic, "informers": d.Informers, "mapper": d.RESTMapper, "features": d.Features,
		"drained": true, "unconditional": true, "validated": true,
	}
	for name, value := range want {
		if w.got[name] != value {
			t.Errorf("Got %v as %s, want %v", w.got[name], name, value)
		}
	}
}

func TestAuthorizer(t *testing.T) {
	var asked authorizationv1.SubjectAccessReviewSpec
	var answer admit.Decision
	var failure error
	w := &wanting{got: map[string]any{}}
	d := admit.Deps{Authorize: func(_ context.Context, spec authorizationv1.SubjectAccessReviewSpec) (admit.Decision, error) {
		asked = spec
		return answer, failure
	}}
	if _, err := intree.Plugin("Wanting", pods, made(w)).New(d, nil); err != nil {
		t.Fatalf("Making the plugin: %v", err)
	}
	alice := &user.DefaultInfo{Name: "alice", UID: "7", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}}
	for _, c := range []struct {
		name     string
		answer   admit.Decision
		failure  error
		decision authorizer.Decision
	}{
		{"yes", admit.Decision{Allowed: true, Reason: "because"}, nil, authorizer.DecisionAllow},
		{"no", admit.Decision{Reason: "because"}, nil, authorizer.DecisionNoOpinion},
		{"no answer", admit.Decision{Allowed: true}, errors.New("down"), authorizer.DecisionNoOpinion},
	} {
		answer, failure = c.answer, c.failure
		decision, reason, err := w.auth.Authorize(t.Context(), authorizer.AttributesRecord{
			User: alice, Verb: "use", Namespace: "ns", APIGroup: "g", APIVersion: "v1", Resource: "r", Subresource: "s", Name: "n", ResourceRequest: true,
		})
		if decision != c.decision || (c.failure == nil && reason != "because") || !errors.Is(err, c.failure) {
			t.Errorf("%s: got %v, %q, %v, want %v", c.name, decision, reason, err, c.decision)
		}
	}
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "alice", UID: "7", Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "ns", Verb: "use", Group: "g", Version: "v1", Resource: "r", Subresource: "s", Name: "n"},
	}
	if diff := cmp.Diff(asked, want); diff != "" {
		t.Errorf("Asked for something else (-got +want):\n%s", diff)
	}
	failure = nil
	if _, _, err := w.auth.Authorize(t.Context(), authorizer.AttributesRecord{Verb: "get", Path: "/healthz"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(asked, authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/healthz", Verb: "get"}}); diff != "" {
		t.Errorf("Asked for something else (-got +want):\n%s", diff)
	}
}

// nosy is a plugin that reads an unknown feature gate.
type nosy struct{ stamper }

func (*nosy) InspectFeatureGates(g featuregate.FeatureGate) { g.Enabled("NoSuchGate") }

func TestPluginsThatCannotStart(t *testing.T) {
	d := admit.Deps{Features: featuregate.NewFeatureGate()}
	broken := errors.New("broken")
	for _, c := range []struct {
		name    string
		factory admission.Factory
		want    string
	}{
		{"the factory fails", func(io.Reader) (admission.Interface, error) { return nil, broken }, "broken"},
		{"the factory makes nothing", func(io.Reader) (admission.Interface, error) { return nil, nil }, "the factory made no plugin"},
		{"no phase", made(admission.NewHandler(admission.Create)), "a *admission.Handler neither mutates nor validates"},
		{"an unknown gate", made(&nosy{}), `initializing: feature "NoSuchGate" is not registered in FeatureGate`},
	} {
		if _, err := intree.Plugin("P", pods, c.factory).New(d, nil); errorText(err) != c.want {
			t.Errorf("%s: got the error %q, want %q", c.name, errorText(err), c.want)
		}
	}
}
