package registration

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/postern-dev/postern/pkg/router"
)

const (
	notAPIServer = `!(has(request.userInfo.username) && request.userInfo.username == 'system:apiserver')`
	notInOurs    = `!(has(request.namespace) && request.namespace in ['kube-system', 'postern-system'])`
)

func rule(group string, resources ...string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: resources},
	}
}

// inAllScopes returns a rule as the API server completes it.
func inAllScopes(r admissionregistrationv1.RuleWithOperations) admissionregistrationv1.RuleWithOperations {
	r.Scope = ptr.To(admissionregistrationv1.AllScopes)
	return r
}

// bareService sets only the fields of its configurations that have no default.
func bareService() router.AdmissionService {
	return router.AdmissionService{
		Path: "/pods",
		MutatingConfig: &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "postern-pods"},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: "pods.postern.dev", Rules: []admissionregistrationv1.RuleWithOperations{rule("", "pods")},
				MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "own", Expression: "true"}},
			}},
		},
		ValidatingConfig: &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "postern-pods", Labels: map[string]string{"a": "b"}},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "pods.postern.dev", Rules: []admissionregistrationv1.RuleWithOperations{rule("", "pods")}, FailurePolicy: ptr.To(admissionregistrationv1.Ignore),
				SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNoneOnDryRun), TimeoutSeconds: ptr.To[int32](3), AdmissionReviewVersions: []string{"v1", "v1beta1"},
			}},
		},
	}
}

// namedService is a bareService of another name.
func namedService(name string) router.AdmissionService {
	s := bareService()
	s.Path, s.MutatingConfig.Name, s.ValidatingConfig.Name = "/"+name, "postern-"+name, "postern-"+name
	return s
}

func TestConfigurationsForAService(t *testing.T) {
	d := Deployment{Namespace: "postern-system", Service: "postern", Port: 8443, Timeout: 10 * time.Second, ExemptNamespaces: []string{"kube-system", "postern-system", ""}}
	client := func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{CABundle: []byte("pem"), Service: &admissionregistrationv1.ServiceReference{
			Namespace: "postern-system", Name: "postern", Path: &path, Port: ptr.To[int32](8443),
		}}
	}
	s := bareService()
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: "postern-pods", Labels: map[string]string{"app.kubernetes.io/managed-by": "postern", "postern.dev/namespace": "postern-system"}},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "pods.postern.dev", ClientConfig: client("/pods/mutate"), Rules: []admissionregistrationv1.RuleWithOperations{inAllScopes(rule("", "pods"))},
			MatchPolicy: ptr.To(admissionregistrationv1.Equivalent), FailurePolicy: ptr.To(admissionregistrationv1.Fail), SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds: ptr.To[int32](10), AdmissionReviewVersions: []string{"v1"}, ReinvocationPolicy: ptr.To(admissionregistrationv1.IfNeededReinvocationPolicy),
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "exclude-apiserver", Expression: notAPIServer}, {Name: "exclude-namespaces", Expression: notInOurs}, {Name: "own", Expression: "true"},
			},
		}},
	}
	if diff := cmp.Diff(d.mutating(s, endpoint{bundle: []byte("pem")}), mutating); diff != "" {
		t.Errorf("Got another mutating configuration (-got +want):\n%s", diff)
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: "postern-pods", Labels: map[string]string{"a": "b", "app.kubernetes.io/managed-by": "postern", "postern.dev/namespace": "postern-system"}},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "pods.postern.dev", ClientConfig: client("/pods/validate"), Rules: []admissionregistrationv1.RuleWithOperations{inAllScopes(rule("", "pods"))},
			MatchPolicy: ptr.To(admissionregistrationv1.Equivalent), FailurePolicy: ptr.To(admissionregistrationv1.Ignore), SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNoneOnDryRun),
			TimeoutSeconds: ptr.To[int32](3), AdmissionReviewVersions: []string{"v1", "v1beta1"},
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "exclude-apiserver", Expression: notAPIServer}, {Name: "exclude-namespaces", Expression: notInOurs},
			},
		}},
	}
	if diff := cmp.Diff(d.validating(s, endpoint{bundle: []byte("pem")}), validating); diff != "" {
		t.Errorf("Got another validating configuration (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(s, bareService()); diff != "" {
		t.Errorf("The service was changed (-got +want):\n%s", diff)
	}
}

func TestConfigurationsForAURL(t *testing.T) {
	for _, url := range []string{"https://10.0.0.1:8443", "https://10.0.0.1:8443/"} {
		d := Deployment{Namespace: "postern-system", URL: url, Service: "unused", Timeout: time.Second, FailurePolicy: admissionregistrationv1.Ignore}
		m, v := d.mutating(bareService(), endpoint{}).Webhooks[0], d.validating(bareService(), endpoint{}).Webhooks[0]
		wantM := admissionregistrationv1.WebhookClientConfig{URL: new("https://10.0.0.1:8443/pods/mutate")}
		wantV := admissionregistrationv1.WebhookClientConfig{URL: new("https://10.0.0.1:8443/pods/validate")}
		if diff := cmp.Diff(m.ClientConfig, wantM) + cmp.Diff(v.ClientConfig, wantV); diff != "" {
			t.Errorf("Got another client configuration (-got +want):\n%s", diff)
		}
		if *m.FailurePolicy != "Ignore" || *v.FailurePolicy != "Ignore" || *m.TimeoutSeconds != 1 {
			t.Errorf("Got the failure policies %s and %s and %d s, want those of the deployment", *m.FailurePolicy, *v.FailurePolicy, *m.TimeoutSeconds)
		}
	}
}

// TestOwnNamespace checks the webhooks that are only for Postern's own namespace. The failure policy Fail of the deployment
// does not apply to them, because no node could start Postern.
func TestOwnNamespace(t *testing.T) {
	own := []admissionregistrationv1.MatchCondition{{Name: "only-own-namespace", Expression: "a"}, {Name: "something-to-do", Expression: "b"}}
	s := bareService()
	s.MutatingConfig.Webhooks[0].MatchConditions, s.ValidatingConfig.Webhooks[0].MatchConditions = own, own
	conditions := append([]admissionregistrationv1.MatchCondition{{Name: "exclude-apiserver", Expression: notAPIServer}}, own...)
	for policy, want := range map[admissionregistrationv1.FailurePolicyType]string{
		"": "Fail, Ignore", admissionregistrationv1.Fail: "Fail, Ignore", admissionregistrationv1.Ignore: "Ignore, Ignore",
	} {
		d := Deployment{Namespace: "postern-system", Timeout: time.Second, ExemptNamespaces: []string{"postern-system"}, FailurePolicy: policy}
		m, v := d.mutating(s, endpoint{}).Webhooks[0], d.validating(s, endpoint{}).Webhooks[0]
		if diff := cmp.Diff(m.MatchConditions, conditions) + cmp.Diff(v.MatchConditions, conditions); diff != "" {
			t.Errorf("With the failure policy %q: got other conditions (-got +want):\n%s", policy, diff)
		}
		if got := string(*m.FailurePolicy + ", " + *v.FailurePolicy); got != want {
			t.Errorf("With the failure policy %q: got %s, want %s", policy, got, want)
		}
	}
}

func TestExclusions(t *testing.T) {
	const leases, authn, authz, coreEvents, events, tokens = "exclude-leases", "exclude-authentication-reviews", "exclude-authorization-reviews",
		"exclude-core-events", "exclude-events", "exclude-tokens"
	const bindings, endpoints, endpointSlices, nodes, csrs = "exclude-bindings", "exclude-endpoints", "exclude-endpointslices", "exclude-new-nodes", "exclude-certificate-requests"
	for _, c := range []struct {
		name  string
		rules []admissionregistrationv1.RuleWithOperations
		want  []string
	}{
		{"pods", []admissionregistrationv1.RuleWithOperations{rule("", "pods")}, nil},
		{"all of core", []admissionregistrationv1.RuleWithOperations{rule("", "*")}, []string{coreEvents, endpoints, nodes}},
		{"all of core with subresources", []admissionregistrationv1.RuleWithOperations{rule("", "*/*")}, []string{coreEvents, bindings, endpoints, nodes, tokens}},
		{"everything but subresources", []admissionregistrationv1.RuleWithOperations{rule("*", "*")}, []string{leases, authn, authz, coreEvents, events, endpoints, endpointSlices, nodes, csrs}},
		{"everything", []admissionregistrationv1.RuleWithOperations{rule("*", "*/*")}, []string{leases, authn, authz, coreEvents, events, bindings, endpoints, endpointSlices, nodes, csrs, tokens}},
		{"all tokens", []admissionregistrationv1.RuleWithOperations{rule("", "*/token")}, []string{tokens}},
		{"all of service accounts", []admissionregistrationv1.RuleWithOperations{rule("", "serviceaccounts/*")}, []string{tokens}},
		{"tokens by name", []admissionregistrationv1.RuleWithOperations{rule("", "serviceaccounts/token")}, nil},
		{"events by name", []admissionregistrationv1.RuleWithOperations{rule("", "events"), rule("events.k8s.io", "events")}, nil},
		{"events by name in any group", []admissionregistrationv1.RuleWithOperations{rule("*", "events")}, nil},
		{"events by name beside everything", []admissionregistrationv1.RuleWithOperations{rule("", "*"), rule("", "events")}, []string{endpoints, nodes}},
		{"requests of certificates by name beside everything", []admissionregistrationv1.RuleWithOperations{rule("certificates.k8s.io", "*"), rule("certificates.k8s.io", "certificatesigningrequests")}, nil},
		{"leases by name", []admissionregistrationv1.RuleWithOperations{rule("coordination.k8s.io", "leases")}, nil},
		{"all of the leases' group", []admissionregistrationv1.RuleWithOperations{rule("coordination.k8s.io", "*")}, []string{leases}},
		{"reviews by name", []admissionregistrationv1.RuleWithOperations{rule("authentication.k8s.io", "tokenreviews")}, nil},
		{"all reviews", []admissionregistrationv1.RuleWithOperations{rule("authorization.k8s.io", "*")}, []string{authz}},
		{"another group", []admissionregistrationv1.RuleWithOperations{rule("apps", "*/*")}, nil},
		{"one rule of two", []admissionregistrationv1.RuleWithOperations{rule("", "pods"), rule("events.k8s.io", "*")}, []string{events}},
	} {
		var got []string
		for _, m := range (Deployment{Namespace: "ns"}).matchConditions(c.rules, nil)[2:] {
			got = append(got, m.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// TestExclusionsExclude evaluates the expressions as the API server does. An error, for example a missing field,
// would deny the request.
func TestExclusionsExclude(t *testing.T) {
	d := Deployment{Namespace: "postern-system", ExemptNamespaces: []string{"kube-system"}}
	conditions := d.matchConditions([]admissionregistrationv1.RuleWithOperations{rule("*", "*/*")}, nil)
	env, err := cel.NewEnv(cel.Variable("request", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]string{
		" pods ns alice": "", " nodes  alice": "", " pods/status ns ": "", "apps deployments ns alice": "", " namespaces web alice": "",
		" pods ns system:apiserver": "exclude-apiserver", " pods postern-system alice": "exclude-namespaces", " pods kube-system alice": "exclude-namespaces",
		" namespaces kube-system alice": "exclude-namespaces", "coordination.k8s.io leases ns alice": "exclude-leases",
		" pods/binding ns alice": "exclude-bindings", " endpoints ns alice": "exclude-endpoints", "discovery.k8s.io endpointslices ns alice": "exclude-endpointslices",
		"certificates.k8s.io certificatesigningrequests/approval  alice": "exclude-certificate-requests", " nodes  alice CREATE": "exclude-new-nodes",
		"coordination.k8s.io leasecandidates ns alice": "", "authentication.k8s.io tokenreviews  alice": "exclude-authentication-reviews",
		"authorization.k8s.io localsubjectaccessreviews ns alice": "exclude-authorization-reviews", " events ns alice": "exclude-core-events",
		"events.k8s.io events ns alice": "exclude-events", "other events ns alice": "", " serviceaccounts/token ns alice": "exclude-tokens", " serviceaccounts ns alice": "",
	} {
		f := strings.Split(request, " ")
		main, sub, _ := strings.Cut(f[1], "/")
		operation := "UPDATE"
		if len(f) > 4 {
			operation = f[4]
		}
		vars := map[string]any{"operation": operation, "resource": map[string]any{"group": f[0], "version": "v1", "resource": main}, "userInfo": map[string]any{}}
		for at, value := range map[string]string{"namespace": f[2], "subResource": sub} {
			if value != "" {
				vars[at] = value
			}
		}
		if f[3] != "" {
			vars["userInfo"] = map[string]any{"username": f[3]}
		}
		got := ""
		for _, c := range conditions {
			ast, issues := env.Compile(c.Expression)
			if issues.Err() != nil {
				t.Fatalf("Compiling %s: %v", c.Name, issues.Err())
			}
			program, err := env.Program(ast)
			if err != nil {
				t.Fatal(err)
			}
			out, _, err := program.Eval(map[string]any{"request": vars})
			if err != nil {
				t.Fatalf("Evaluating %s for %q: %v", c.Name, request, err)
			}
			if out.Value() != true {
				got += c.Name
			}
		}
		if got != want {
			t.Errorf("%q is kept away by %q, want %q", request, got, want)
		}
	}
}
