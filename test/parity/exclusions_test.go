package parity_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/internal/conditions"
	"github.com/postern-dev/postern/internal/exclusions"
	"github.com/postern-dev/postern/internal/seed"
	"github.com/postern-dev/postern/internal/segment"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	"github.com/postern-dev/postern/pkg/registration"
	"github.com/postern-dev/postern/pkg/router"
)

// TestExclusions registers a service for all resources, and checks which requests the API server would send
// for the resulting configuration.
func TestExclusions(t *testing.T) {
	registered := everything(t)
	w, err := conditions.NewCompiler().Compile(registered.Name, registered.Rules, registered.MatchConditions)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		group, resource, sub, namespace, user string
		want                                  bool
	}{
		"a pod":                          {"", "pods", "", "shop", "alice", true},
		"a pod of a user without a name": {"", "pods", "", "shop", "", true},
		"a cluster role":                 {"rbac.authorization.k8s.io", "clusterroles", "", "", "alice", true},
		"a pod of ours":                  {"", "pods", "", "postern-system", "alice", false},
		"our namespace":                  {"", "namespaces", "", "postern-system", "alice", false},
		"a pod in an exempt namespace":   {"", "pods", "", "kube-system", "alice", false},
		"the API server's own":           {"", "namespaces", "", "default", "system:apiserver", false},
		"a lease":                        {"coordination.k8s.io", "leases", "", "kube-node-lease", "system:node:a", false},
		"a token review":                 {"authentication.k8s.io", "tokenreviews", "", "", "alice", false},
		"an access review":               {"authorization.k8s.io", "subjectaccessreviews", "", "", "alice", false},
		"an event":                       {"", "events", "", "shop", "alice", false},
		"an event of the other group":    {"events.k8s.io", "events", "", "shop", "alice", false},
		"a binding":                      {"", "pods", "binding", "shop", "system:kube-scheduler", false},
		"endpoints":                      {"", "endpoints", "", "shop", "alice", false},
		"an endpoint slice":              {"discovery.k8s.io", "endpointslices", "", "shop", "alice", false},
		"a request for a certificate":    {"certificates.k8s.io", "certificatesigningrequests", "", "", "alice", false},
		"a change of a node":             {"", "nodes", "", "", "alice", true},
		"a service account":              {"", "serviceaccounts", "", "shop", "alice", true},
		"a service account's token":      {"", "serviceaccounts", "token", "shop", "system:node:a", false},
		"a pod's status":                 {"", "pods", "status", "shop", "system:node:a", true},
	} {
		t.Run(name, func(t *testing.T) {
			dryRun := false
			match, err := conditions.Match(t.Context(), []*conditions.Webhook{w}, &admissionv1.AdmissionRequest{
				UID: admittest.UID, Operation: admissionv1.Update, DryRun: &dryRun, Namespace: tc.namespace, SubResource: tc.sub,
				Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
				Resource:  metav1.GroupVersionResource{Group: tc.group, Version: "v1", Resource: tc.resource},
				UserInfo:  authenticationv1.UserInfo{Username: tc.user},
				Object:    runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Pod"}`)},
				OldObject: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Pod"}`)},
			}, nil)
			if err != nil || match.Called != tc.want {
				t.Errorf("Got called %t, error %v, want %t", match.Called, err, tc.want)
			}
		})
	}
}

// TestExclusionsWithoutCEL compares the evaluation of the conditions that registration adds with that of CEL.
func TestExclusionsWithoutCEL(t *testing.T) {
	chance, compiler := seed.Chance(t), conditions.NewCompiler()
	all := append(exclusions.Of([]admissionregistrationv1.RuleWithOperations{everyRule()}), exclusions.APIServer(), exclusions.Namespaces(nil),
		exclusions.Namespaces([]string{"shop"}), exclusions.Namespaces([]string{"kube-system", "postern-system", "shop"}),
		admissionregistrationv1.MatchCondition{Name: router.OwnNamespace, Expression: exclusions.AllBut(admit.CELString("postern-system"))})
	for _, c := range all {
		w, err := compiler.Compile(c.Name, []admissionregistrationv1.RuleWithOperations{everyRule()}, []admissionregistrationv1.MatchCondition{c})
		if err != nil {
			t.Fatal(err)
		}
		met := map[bool]int{}
		for range 1000 {
			ar := randomExclusion(chance)
			match, err := conditions.Match(t.Context(), []*conditions.Webhook{w}, ar, nil)
			if err != nil || !match.Addressed {
				t.Fatalf("%s: the rules match %t, error %v", c.Name, match.Addressed, err)
			}
			if got, known := exclusions.Evaluate(c, ar); !known || got != match.Called {
				t.Errorf("%s of %s: got %t, known %t, want %t for %s", c.Name, text(ar), got, known, match.Called, c.Expression)
			}
			met[match.Called]++
		}
		// The first of the conditions with names excludes nothing.
		if met[true] == 0 || met[false] == 0 && c.Expression != exclusions.Namespaces(nil).Expression {
			t.Errorf("%s was true %d times and false %d times", c.Expression, met[true], met[false])
		}
	}
}

// randomExclusion returns a request that some of the conditions exclude. Its object has no meaning.
func randomExclusion(chance *rand.Rand) *admissionv1.AdmissionRequest {
	object := runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Pod"}`)}
	ar := &admissionv1.AdmissionRequest{
		UID: admittest.UID, DryRun: new(bool), Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Operation: pick(chance, admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect),
		Namespace: pick(chance, "", "shop", "lab", "kube-system", "postern-system", "postern-system-2", "shop, lab"),
		Resource: metav1.GroupVersionResource{
			Group:    pick(chance, "", "", "", "apps", "coordination.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "events.k8s.io", "discovery.k8s.io", "certificates.k8s.io"),
			Version:  "v1",
			Resource: pick(chance, "pods", "nodes", "leases", "events", "endpoints", "endpointslices", "serviceaccounts", "certificatesigningrequests", "tokenreviews"),
		},
		SubResource: pick(chance, "", "", "status", "binding", "token", "approval"),
		UserInfo:    authenticationv1.UserInfo{Username: pick(chance, "", "alice", "system:apiserver", "system:apiserver2")},
	}
	if ar.Operation != admissionv1.Delete {
		ar.Object = object
	}
	if ar.Operation == admissionv1.Update || ar.Operation == admissionv1.Delete {
		ar.OldObject = object
	}
	return ar
}

type bundle struct{}

func (bundle) Bundle() []byte                { return []byte("CA") }
func (bundle) ValidFor(string) (bool, error) { return true, nil }
func (bundle) Changed() <-chan struct{}      { return nil }
func (bundle) Held([][]byte) []byte          { return nil }

// everything returns the webhook that is registered for all resources.
func everything(t *testing.T) *admissionregistrationv1.ValidatingWebhook {
	t.Helper()
	gv := admissionregistrationv1.SchemeGroupVersion
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		gv.WithResource("mutatingwebhookconfigurations"):   "MutatingWebhookConfigurationList",
		gv.WithResource("validatingwebhookconfigurations"): "ValidatingWebhookConfigurationList",
		{Version: "v1", Resource: "namespaces"}:            "NamespaceList",
	})
	applied := make(chan []byte, 1)
	client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if patch, ok := a.(clienttesting.PatchAction); ok {
			applied <- patch.GetPatch()
		}
		return true, &unstructured.Unstructured{}, nil
	})
	service := router.AdmissionService{
		Path:     "/test",
		Validate: func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return nil },
		ValidatingConfig: &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "postern-test"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "test.postern.dev", Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"*"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
			}}}},
		},
	}
	deployment := registration.Deployment{Namespace: "postern-system", URL: "https://127.0.0.1", ExemptNamespaces: []string{"kube-system"}}
	fleet := registration.NewFleet(client, registration.FleetOptions{Namespace: "postern-system", Name: "test"})
	r := registration.NewRegistrar(client, deployment, []router.AdmissionService{service}, bundle{}, segment.New(func() [][]byte { return nil }), fleet, registration.NewMetrics(metrics.NewKubeRegistry()))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() { _ = r.Run(ctx, func(context.Context) error { return nil }) }()
	var config admissionregistrationv1.ValidatingWebhookConfiguration
	select {
	case data := <-applied:
		if err := json.Unmarshal(data, &config); err != nil || len(config.Webhooks) != 1 {
			t.Fatalf("Got %d webhooks, %v; want one", len(config.Webhooks), err)
		}
	case <-ctx.Done():
		t.Fatal("Nothing was registered")
	}
	return &config.Webhooks[0]
}
