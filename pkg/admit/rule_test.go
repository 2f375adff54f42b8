package admit_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/postern-dev/postern/pkg/admit"
)

func TestRulesFilter(t *testing.T) {
	namespaced := admit.Rule{Resources: []string{"*"}, Operations: []admissionv1.Operation{create}, Scope: admissionregistrationv1.NamespacedScope}
	cluster := admit.Rule{Resources: []string{"*"}, Operations: []admissionv1.Operation{create}, Scope: admissionregistrationv1.ClusterScope}
	anyGroup := admit.Rule{Group: "*", Resources: []string{"*/*"}, Operations: []admissionv1.Operation{create, update, del, connect}}
	apps := admit.Rule{Group: "apps", Resources: []string{"deployments", "deployments/*", "*/scale"}, Operations: []admissionv1.Operation{update}}
	for _, c := range []struct {
		name            string
		rule            admit.Rule
		group, resource string
		op              admissionv1.Operation
		namespace       string
		want            bool
	}{
		{"the resource", admit.On("pods", create), "", "pods", create, "ns", true},
		{"another operation", admit.On("pods", create), "", "pods", update, "ns", false},
		{"another resource", admit.On("pods", create), "", "services", create, "ns", false},
		{"another group", admit.On("pods", create), "metrics.k8s.io", "pods", create, "ns", false},
		{"not its subresource", admit.On("pods", create), "", "pods/binding", create, "ns", false},
		{"the subresource", admit.On("pods/exec", connect), "", "pods/exec", connect, "ns", true},
		{"not the main resource", admit.On("pods/exec", connect), "", "pods", connect, "ns", false},
		{"a star", admit.On("*", create), "", "services", create, "ns", true},
		{"a star, no subresource", admit.On("*", create), "", "pods/eviction", create, "ns", false},
		{"of a group", admit.On("deployments", create).Of("apps"), "apps", "deployments", create, "ns", true},
		{"of a group, not of core", admit.On("deployments", create).Of("apps"), "", "deployments", create, "ns", false},
		{"all groups and subresources", anyGroup, "apps", "deployments/scale", connect, "", true},
		{"all subresources", apps, "apps", "deployments/status", update, "ns", true},
		{"all resources' subresource", apps, "apps", "replicasets/scale", update, "ns", true},
		{"not all resources' others", apps, "apps", "replicasets/status", update, "ns", false},
		{"namespaced", namespaced, "", "pods", create, "ns", true},
		{"namespaced, not a node", namespaced, "", "nodes", create, "", false},
		{"namespaced, not a namespace", namespaced, "", "namespaces", create, "ns", false},
		{"cluster, a node", cluster, "", "nodes", create, "", true},
		{"cluster, a namespace", cluster, "", "namespaces", create, "ns", true},
		{"cluster, not a pod", cluster, "", "pods", create, "ns", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r recorder
			ar := request(c.op, `{}`, "")
			ar.Resource.Group, ar.Namespace = c.group, c.namespace
			ar.Resource.Resource, ar.SubResource, _ = strings.Cut(c.resource, "/")
			resp := service(t, r.plugin("P", nil, c.rule)).Validate(t.Context(), ar)
			if got := len(r.ran) == 1; got != c.want || !resp.Allowed {
				t.Errorf("Ran: %v, allowed: %v; want %v and true", got, resp.Allowed, c.want)
			}
		})
	}
}

func TestRuleOf(t *testing.T) {
	for name, c := range map[string]struct {
		rule admit.Rule
		want string
	}{
		"core":     {admit.On("pods", create), "/v1"},
		"a group":  {admit.On("deployments", create).Of("apps"), "apps/v1"},
		"versions": {admit.On("widgets", create).Of("acme.example.com", "v1", "v1beta1"), "acme.example.com/v1,v1beta1"},
	} {
		var r recorder
		registered := service(t, r.plugin("P", nil, c.rule)).ValidatingConfig.Webhooks[0].Rules[0]
		if got := registered.APIGroups[0] + "/" + strings.Join(registered.APIVersions, ","); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// TestRuleThatNeverMatches covers mistakes with which a plugin would never be called: the API server accepts the group, and
// refuses all webhooks of the family for the operation.
func TestRuleThatNeverMatches(t *testing.T) {
	for want, rule := range map[string]admit.Rule{
		`plugin P: the rule for deployments has the API group "apps/v1", want Of("apps", "v1")`:              admit.On("deployments", create).Of("apps/v1"),
		`plugin P: a rule lacks its resource`:                                                                {Operations: []admissionv1.Operation{create}},
		`plugin P: the rule for pods has no operation`:                                                       admit.On("pods"),
		`plugin P: the rule for widgets has an empty version`:                                                admit.On("widgets", create).Of("acme.example.com", ""),
		`plugin P: the rule for pods has the scope "namespaced", want *, Cluster or Namespaced`:              {Resources: []string{"pods"}, Operations: []admissionv1.Operation{create}, Scope: "namespaced"},
		`plugin P: the rule for pods has the failure policy "ignore", want Fail or Ignore`:                   {Resources: []string{"pods"}, Operations: []admissionv1.Operation{create}, FailurePolicy: "ignore"},
		`plugin P: the rule for pods has the operation "create", want one of [CREATE UPDATE DELETE CONNECT]`: admit.On("pods", "create"),
	} {
		var r recorder
		family := admit.Family{Name: "test", Plugins: []*admit.Plugin{r.plugin("P", nil, rule)}}
		if _, err := family.Service(admit.Deps{}, map[string][]byte{"P": nil}); err == nil || err.Error() != want {
			t.Errorf("Got error %v, want %s", err, want)
		}
	}
}

// TestFuncThatNothingCalls covers a func without a rule for its phase, which would let everything pass in silence.
func TestFuncThatNothingCalls(t *testing.T) {
	pods := admit.On("pods", create)
	for name, c := range map[string]struct {
		handler admit.Handler
		rules   []admit.Rule
		want    string
	}{
		"no rule":                  {admit.Handler{Validate: pass}, nil, "plugin P: no rule for the validating phase, so nothing would call Validate"},
		"a rule of the other one":  {admit.Handler{Mutate: pass, Validate: pass}, []admit.Rule{pods.In(admit.Validating)}, "plugin P: no rule for the mutating phase, so nothing would call Mutate"},
		"a rule of both":           {admit.Handler{Mutate: pass, Validate: pass}, []admit.Rule{pods}, ""},
		"a rule of the handler":    {admit.Handler{Validate: pass, Rules: []admit.Rule{pods}}, nil, ""},
		"a rule for what it lacks": {admit.Handler{Validate: pass}, []admit.Rule{pods}, ""},
		"only for what it lacks":   {admit.Handler{Validate: pass}, []admit.Rule{pods, admit.On("services", create).In(admit.Mutating)}, "plugin P: the rule for services is for Mutate, which the plugin does not have"},
		"without any func":         {admit.Handler{}, []admit.Rule{pods.In(admit.Mutating)}, ""},
		"neither":                  {admit.Handler{}, nil, ""},
	} {
		family := admit.Family{Name: "test", Plugins: []*admit.Plugin{plugin("P", c.handler, c.rules...)}}
		got := ""
		if _, err := family.Service(admit.Deps{}, map[string][]byte{"P": nil}); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got error %q, want %q", name, got, c.want)
		}
	}
}
