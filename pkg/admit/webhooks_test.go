package admit_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/postern-dev/postern/pkg/admit"
)

var both = admit.Handler{Mutate: pass, Validate: pass}

// wantRule returns a rule of a webhook for all scopes.
func wantRule(group string, resources []string, ops ...admissionregistrationv1.OperationType) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{Operations: ops, Rule: admissionregistrationv1.Rule{
		APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: resources, Scope: ptr.To(admissionregistrationv1.AllScopes),
	}}
}

func TestConfigurationsOfAFamily(t *testing.T) {
	writer := plugin("Writer", both, admit.On("pods", create).If("a"), admit.On("services", create, update).In(admit.Mutating))
	writer.SideEffects = true
	s := service(t, writer,
		plugin("Reader", both, admit.On("pods", create, update).If("b"), admit.On("pods/exec", connect).In(admit.Validating).If("c")),
		plugin("Mutator", admit.Handler{Mutate: pass}, admit.On("nodes", update)))
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "postern-test"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "test.postern.dev", FailurePolicy: ptr.To(admissionregistrationv1.Fail), MatchPolicy: ptr.To(admissionregistrationv1.Equivalent),
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNoneOnDryRun),
			Rules: []admissionregistrationv1.RuleWithOperations{
				wantRule("", []string{"nodes"}, "UPDATE"), wantRule("", []string{"pods", "services"}, "CREATE", "UPDATE"),
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "something-to-do", Expression: "" +
				"(request.resource.group == '' && request.operation in ['CREATE'] && (request.resource.resource == 'pods' && (has(request.subResource) ? request.subResource : '') == '') && (a))" +
				" || (request.resource.group == '' && request.operation in ['CREATE', 'UPDATE'] && (request.resource.resource == 'services' && (has(request.subResource) ? request.subResource : '') == ''))" +
				" || (request.resource.group == '' && request.operation in ['CREATE', 'UPDATE'] && (request.resource.resource == 'pods' && (has(request.subResource) ? request.subResource : '') == '') && (b))" +
				" || (request.resource.group == '' && request.operation in ['UPDATE'] && (request.resource.resource == 'nodes' && (has(request.subResource) ? request.subResource : '') == ''))"}},
		}},
	}
	if diff := cmp.Diff(s.MutatingConfig, mutating); diff != "" {
		t.Errorf("Got another mutating configuration (-got +want):\n%s", diff)
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "postern-test"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "test.postern.dev", FailurePolicy: ptr.To(admissionregistrationv1.Fail), MatchPolicy: ptr.To(admissionregistrationv1.Equivalent),
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNoneOnDryRun),
			Rules: []admissionregistrationv1.RuleWithOperations{
				wantRule("", []string{"pods"}, "CREATE", "UPDATE"), wantRule("", []string{"pods/exec"}, "CONNECT"),
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "something-to-do", Expression: "" +
				"(request.resource.group == '' && request.operation in ['CREATE'] && (request.resource.resource == 'pods' && (has(request.subResource) ? request.subResource : '') == '') && (a))" +
				" || (request.resource.group == '' && request.operation in ['CREATE', 'UPDATE'] && (request.resource.resource == 'pods' && (has(request.subResource) ? request.subResource : '') == '') && (b))" +
				" || (request.resource.group == '' && request.operation in ['CONNECT'] && (request.resource.resource == 'pods' && (has(request.subResource) ? request.subResource : '') == 'exec') && (c))"}},
		}},
	}
	if diff := cmp.Diff(s.ValidatingConfig, validating); diff != "" {
		t.Errorf("Got another validating configuration (-got +want):\n%s", diff)
	}
}

func TestPoliciesOfAFamily(t *testing.T) {
	family := admit.Family{
		Name: "test", Plugins: []*admit.Plugin{plugin("Plugin", both, admit.On("pods", create))},
		MatchPolicy: admissionregistrationv1.Exact, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
	}
	s, err := family.Service(admit.Deps{}, map[string][]byte{"Plugin": nil})
	if err != nil {
		t.Fatal(err)
	}
	m, v := s.MutatingConfig.Webhooks[0], s.ValidatingConfig.Webhooks[0]
	if *m.MatchPolicy != "Exact" || *v.MatchPolicy != "Exact" || m.ReinvocationPolicy == nil || *m.ReinvocationPolicy != "Never" {
		t.Errorf("Got %+v and %+v, want the policies of the family", m, v)
	}
}

// TestVersionsOfAFamily covers conversion. CEL sees only the version that the client sent, and
// the API server sends a request only once.
func TestVersionsOfAFamily(t *testing.T) {
	rule := func(resource string, op admissionv1.Operation, versions ...string) admit.Rule {
		return admit.Rule{Group: "apps", Versions: versions, Resources: []string{resource}, Operations: []admissionv1.Operation{op}, Condition: "c"}
	}
	first := rule("deployments", create, "v1")
	for _, c := range []struct {
		name  string
		other admit.Rule
		want  string
	}{
		{"the same", rule("deployments", create, "v1"), ""},
		{"the default", rule("deployments", create), ""},
		{"another resource", rule("statefulsets", create, "v1beta1"), ""},
		{"another operation", rule("deployments", update, "v1beta1"), ""},
		{"another phase", rule("deployments", create, "v1beta1").In(admit.Validating), ""},
		{"another version", rule("deployments", create, "v1beta1"), "plugin Second: the rule for deployments has the versions v1beta1, " +
			"and that of First for deployments has the versions v1: want the same ones, or the plugins in two families"},
		{"one more version", rule("deployments", create, "v1beta1", "v1"), "plugin Second: the rule for deployments has the versions v1beta1,v1, " +
			"and that of First for deployments has the versions v1: want the same ones, or the plugins in two families"},
		{"a wildcard", rule("*", create, "*"), "plugin Second: the rule for * has the versions *, " +
			"and that of First for deployments has the versions v1: want the same ones, or the plugins in two families"},
	} {
		t.Run(c.name, func(t *testing.T) {
			second := both
			if c.other.Phase == admit.Validating {
				second.Mutate = nil
			}
			family := admit.Family{Name: "test", Plugins: []*admit.Plugin{plugin("First", admit.Handler{Mutate: pass}, first), plugin("Second", second, c.other)}}
			s, err := family.Service(admit.Deps{}, map[string][]byte{"First": nil, "Second": nil})
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Fatalf("Got the error %q, want %q", got, c.want)
			}
			if err == nil && strings.Contains(s.MutatingConfig.Webhooks[0].MatchConditions[0].Expression, "version") {
				t.Errorf("The condition asks for a version: %s", s.MutatingConfig.Webhooks[0].MatchConditions[0].Expression)
			}
		})
	}
}

func TestRulesWithTwoPolicies(t *testing.T) {
	s := service(t, plugin("Plugin", both, admit.On("pods", create), admit.On("nodes", create).OrIgnore()))
	var got []string
	for _, w := range s.ValidatingConfig.Webhooks {
		got = append(got, w.Name+" "+string(*w.FailurePolicy)+" "+w.Rules[0].Resources[0])
	}
	if diff := cmp.Diff(got, []string{"test.postern.dev Fail pods", "test-if-available.postern.dev Ignore nodes"}); diff != "" {
		t.Errorf("Got other webhooks (-got +want):\n%s", diff)
	}
}

func TestRulesAreNoWiderThanThePlugins(t *testing.T) {
	namespaced := admit.Rule{Group: "*", Resources: []string{"*"}, Operations: []admissionv1.Operation{create}, Scope: admissionregistrationv1.NamespacedScope}
	beta := admit.Rule{Group: "apps", Versions: []string{"v1beta1", "v1"}, Resources: []string{"deployments"}, Operations: []admissionv1.Operation{update}}
	wantScoped := wantRule("*", []string{"*"}, "CREATE")
	wantScoped.Scope = ptr.To(admissionregistrationv1.NamespacedScope)
	wantBeta := wantRule("apps", []string{"deployments"}, "UPDATE")
	wantBeta.APIVersions = []string{"v1beta1", "v1"}
	for _, c := range []struct {
		name  string
		rules []admit.Rule
		want  []admissionregistrationv1.RuleWithOperations
	}{
		{
			"the same twice",
			[]admit.Rule{admit.On("pods", create), admit.On("pods", create)},
			[]admissionregistrationv1.RuleWithOperations{wantRule("", []string{"pods"}, "CREATE")},
		},
		{
			"operations of one resource, in order",
			[]admit.Rule{admit.On("pods", del), admit.On("pods", connect, create)},
			[]admissionregistrationv1.RuleWithOperations{wantRule("", []string{"pods"}, "CREATE", "DELETE", "CONNECT")},
		},
		{
			"operations of two resources",
			[]admit.Rule{admit.On("pods", create), admit.On("services", update)},
			[]admissionregistrationv1.RuleWithOperations{wantRule("", []string{"pods"}, "CREATE"), wantRule("", []string{"services"}, "UPDATE")},
		},
		{
			"resources with the same operations",
			[]admit.Rule{admit.On("services", create), admit.On("pods", create)},
			[]admissionregistrationv1.RuleWithOperations{wantRule("", []string{"pods", "services"}, "CREATE")},
		},
		{
			"a scope, and versions",
			[]admit.Rule{namespaced, beta, admit.On("pods", create)},
			[]admissionregistrationv1.RuleWithOperations{wantRule("", []string{"pods"}, "CREATE"), wantScoped, wantBeta},
		},
		// The API server rejects a rule with a wildcard and a resource that the wildcard
		// covers.
		{
			"a star and a resource",
			[]admit.Rule{admit.On("*", create), admit.On("pods", create), admit.On("pods/exec", create)},
			[]admissionregistrationv1.RuleWithOperations{wantRule("", []string{"*"}, "CREATE"), wantRule("", []string{"pods", "pods/exec"}, "CREATE")},
		},
		{
			"everything and a star",
			[]admit.Rule{admit.On("*", create), admit.On("*/*", create), admit.On("pods/exec", create)},
			[]admissionregistrationv1.RuleWithOperations{wantRule("", []string{"*/*"}, "CREATE"), wantRule("", []string{"pods/exec"}, "CREATE")},
		},
		{
			"all subresources and one",
			[]admit.Rule{admit.On("pods/status", create), admit.On("pods/*", create), admit.On("*/scale", create), admit.On("a/scale", create)},
			[]admissionregistrationv1.RuleWithOperations{wantRule("", []string{"*/scale", "pods/*"}, "CREATE"), wantRule("", []string{"a/scale", "pods/status"}, "CREATE")},
		},
		{
			"a star of fewer operations",
			[]admit.Rule{admit.On("*", create), admit.On("pods", create, update)},
			[]admissionregistrationv1.RuleWithOperations{wantRule("", []string{"*"}, "CREATE"), wantRule("", []string{"pods"}, "CREATE", "UPDATE")},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 3 { // The result must not depend on the order of maps.
				s := service(t, plugin("P", admit.Handler{Validate: pass}, c.rules...))
				if diff := cmp.Diff(s.ValidatingConfig.Webhooks[0].Rules, c.want); diff != "" {
					t.Fatalf("Got other rules (-got +want):\n%s", diff)
				}
			}
		})
	}
}

func TestConditions(t *testing.T) {
	const pods = "request.resource.group == '' && request.operation in ['CREATE'] && (request.resource.resource == 'pods' && (has(request.subResource) ? request.subResource : '') == '')"
	const services = "request.resource.group == '' && request.operation in ['CREATE'] && (request.resource.resource == 'services' && (has(request.subResource) ? request.subResource : '') == '')"
	for _, c := range []struct {
		name  string
		rules []admit.Rule
		want  string
	}{
		{"none", []admit.Rule{admit.On("pods", create)}, ""},
		{"one", []admit.Rule{admit.On("pods", create).If("a")}, "(a)"},
		{"one, with an or", []admit.Rule{admit.On("pods", create).If("a || b")}, "(a || b)"},
		{"two for the same requests", []admit.Rule{admit.On("pods", create).If("a"), admit.On("pods", create).If("b")}, "(a) || (b)"},
		{"the same twice", []admit.Rule{admit.On("pods", create).If("a"), admit.On("pods", create).If("a")}, "(a)"},
		{"one without for the same requests", []admit.Rule{admit.On("pods", create).If("a"), admit.On("pods", create)}, ""},
		{
			"one without for others",
			[]admit.Rule{admit.On("pods", create).If("a || b"), admit.On("services", create)},
			"(" + pods + " && (a || b)) || (" + services + ")",
		},
		{
			"two for others",
			[]admit.Rule{admit.On("pods", create).If("a"), admit.On("services", create).If("b")},
			"(" + pods + " && (a)) || (" + services + " && (b))",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			if conditions := service(t, plugin("P", admit.Handler{Mutate: pass}, c.rules...)).MutatingConfig.Webhooks[0].MatchConditions; len(conditions) > 0 {
				got = conditions[0].Expression
			}
			if got != c.want {
				t.Errorf("Got\n  %s\nwant\n  %s", got, c.want)
			}
		})
	}
}

// TestFailurePolicies checks that a request causes one call, independent of the failure
// policies of the plugins that handle it. TestRandomRulesCallExactlyOnce counts the calls of
// families with overlapping rules of both policies.
func TestFailurePolicies(t *testing.T) {
	ignored := func(rules ...admit.Rule) *admit.Plugin {
		p := plugin("Ignored", admit.Handler{Mutate: pass}, rules...)
		p.FailurePolicy = admissionregistrationv1.Ignore
		return p
	}
	type webhook struct {
		name, policy, conditions string
		resources                []string
	}
	const isPods = "request.resource.group == '' && request.operation in ['CREATE'] && (request.resource.resource == 'pods' && (has(request.subResource) ? request.subResource : '') == '')"
	isNodes := strings.Replace(isPods, "pods", "nodes", 1)
	for _, c := range []struct {
		name    string
		plugins []*admit.Plugin
		want    []webhook
	}{
		{"ignore alone", []*admit.Plugin{ignored(admit.On("pods", create))}, []webhook{{"test-if-available.postern.dev", "Ignore", "", []string{"pods"}}}},
		{"other requests", []*admit.Plugin{ignored(admit.On("pods", create)), plugin("P", both, admit.On("pods", update))}, []webhook{
			{"test.postern.dev", "Fail", "", []string{"pods"}}, {"test-if-available.postern.dev", "Ignore", "", []string{"pods"}},
		}},
		{"some of the same", []*admit.Plugin{ignored(admit.On("*", create)), plugin("P", both, admit.On("pods", create))}, []webhook{
			{"test.postern.dev", "Fail", "", []string{"pods"}},
			{"test-if-available.postern.dev", "Ignore", "not-called-already: !((" + isPods + "))", []string{"*"}},
		}},
		{"some of the same on a condition", []*admit.Plugin{plugin("P", both, admit.On("pods", create).If("a"), admit.On("pods", create).OrIgnore(), admit.On("nodes", create))}, []webhook{
			{"test.postern.dev", "Fail", "something-to-do: (" + isPods + " && (a)) || (" + isNodes + ")", []string{"nodes", "pods"}},
			{"test-if-available.postern.dev", "Ignore", "not-called-already: !((" + isPods + " && (a)))", []string{"pods"}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []webhook
			for _, w := range service(t, c.plugins...).MutatingConfig.Webhooks {
				conditions := ""
				for _, condition := range w.MatchConditions {
					conditions += condition.Name + ": " + condition.Expression
				}
				got = append(got, webhook{w.Name, string(*w.FailurePolicy), conditions, w.Rules[0].Resources})
			}
			if diff := cmp.Diff(got, c.want, cmp.AllowUnexported(webhook{})); diff != "" {
				t.Errorf("Got other webhooks (-got +want):\n%s", diff)
			}
		})
	}
}
