package admit

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/internal/exclusions"
	"github.com/postern-dev/postern/internal/seed"
	"github.com/postern-dev/postern/pkg/router"
)

// TestRandomRulesCallExactlyOnce generates families of random rules. The API server must call
// their webhooks exactly once for a request that a plugin handles, and not at all for any
// other request. The call fails closed if a rule that has something to do fails closed. The condition of a rule fails for
// requests that the rule does not match, so the test detects a guard that evaluates it anyway. For Postern's own namespace
// only the rules for it count. A rule does not count for what is excluded from its webhook.
func TestRandomRulesCallExactlyOnce(t *testing.T) {
	called, excluded := map[string]int{}, 0
	first := seed.First(t)
	for seed := first; seed < first+200; seed++ {
		r := rand.New(rand.NewSource(seed))
		steps := randomSteps(r)
		family := Family{Name: "test"}
		entries := family.entries(steps, own)
		var programs, included [][]cel.Program
		for _, e := range entries {
			programs, included = append(programs, compileConditions(t, e.conditions)), append(included, compileConditions(t, exclusions.Of(e.rules)))
		}
		for range 20 {
			ar := randomRequest(r)
			conditions, want := map[string]any{}, ""
			for i, rule := range rulesOf(steps) {
				if !rule.matches(ar) || rule.OwnNamespace != (ar.Namespace == own) {
					continue
				}
				of := slices.IndexFunc(entries, func(e entry) bool {
					return e.policy == rule.FailurePolicy && router.IsForOwnNamespace(e.conditions) == rule.OwnNamespace
				})
				if !evaluate(t, included[of], ar, nil) {
					excluded++
					if rule.Condition != "" {
						conditions[fmt.Sprint("c", i)] = r.Intn(2) == 0
					}
					continue
				}
				holds := r.Intn(2) == 0
				if rule.Condition != "" {
					conditions[fmt.Sprint("c", i)] = holds
				}
				if (holds || rule.Condition == "") && want != string(admissionregistrationv1.Fail) {
					want = string(rule.FailurePolicy)
				}
			}
			got := ""
			for i, e := range entries {
				if ar.Namespace == own && !router.IsForOwnNamespace(e.conditions) {
					continue // Package registration excludes it.
				}
				if matchesAny(e.rules, ar) && evaluate(t, included[i], ar, nil) && evaluate(t, programs[i], ar, conditions) {
					got += string(e.policy)
					called[string(e.policy)+" in "+ar.Namespace]++
				}
			}
			if got != "" && !slices.ContainsFunc(steps, func(s step) bool { return s.sees(ar) }) {
				t.Fatalf("Seed %d: a webhook is called for %+v, which no plugin sees", seed, ar)
			}
			if got != want {
				t.Fatalf("Seed %d: for %s %s/%s %s in %q the policies of the called webhooks are %q, want %q\nrules: %+v\nentries: %+v",
					seed, ar.Operation, ar.Resource.Group, ar.Resource.Resource, ar.SubResource, ar.Namespace, got, want, rulesOf(steps), entries)
			}
		}
	}
	if excluded < 30 {
		t.Errorf("Only %d rules did not count because of an exclusion", excluded)
	}
	for _, what := range []string{"Fail in ns", "Ignore in ns", "Fail in " + own, "Ignore in " + own} {
		if called[what] < 30 {
			t.Errorf("%s: only %d calls", what, called[what])
		}
	}
}

// TestExcludedFromOneWebhook has a request that is excluded from the webhook that fails closed, and that a rule that fails
// open names.
func TestExcludedFromOneWebhook(t *testing.T) {
	p := &Plugin{Name: "P"}
	for rule, want := range map[string]string{"*/*": "Ignore", "serviceaccounts/token": "Fail"} {
		rules := p.rules(Handler{Rules: []Rule{On(rule, admissionv1.Create), On("serviceaccounts/token", admissionv1.Create).OrIgnore()}})
		ar := &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: "ns", SubResource: "token", Resource: metav1.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"},
		}
		got := ""
		for _, e := range (Family{Name: "test"}).entries([]step{{plugin: p, rules: rules}}, own) {
			if matchesAny(e.rules, ar) && evaluate(t, compileConditions(t, append(exclusions.Of(e.rules), e.conditions...)), ar, nil) {
				got += string(e.policy)
			}
		}
		if got != want {
			t.Errorf("With a closed rule for %s: the policies of the called webhooks are %q, want %q", rule, got, want)
		}
	}
}

// own is the namespace of Postern.
const own = "postern-system"

func oneOf[T any](r *rand.Rand, of ...T) T { return of[r.Intn(len(of))] }

// randomSteps returns random rules. The condition of the rule with the index i has the name
// ci.
func randomSteps(r *rand.Rand) []step {
	var steps []step
	n := 0
	for range 1 + r.Intn(3) {
		p := &Plugin{FailurePolicy: oneOf(r, "", admissionregistrationv1.Fail, admissionregistrationv1.Ignore)}
		var rules []Rule
		for range 1 + r.Intn(3) {
			rule := Rule{Group: oneOf(r, "", "", "apps", "*"), Scope: oneOf(r, "", admissionregistrationv1.AllScopes, admissionregistrationv1.NamespacedScope, admissionregistrationv1.ClusterScope)}
			for range 1 + r.Intn(2) {
				rule.Resources = append(rule.Resources, oneOf(r, "pods", "pods", "nodes", "namespaces", "pods/exec", "pods/*", "*", "*/*", "*/exec", "pods/binding"))
				rule.Operations = append(rule.Operations, oneOf(r, admissionv1.Create, admissionv1.Update, admissionv1.Connect))
			}
			if r.Intn(4) == 0 {
				rule = rule.OrIgnore()
			}
			if r.Intn(3) == 0 {
				rule = rule.InOwnNamespace()
			}
			if r.Intn(3) > 0 {
				rule.Condition = fmt.Sprintf("request.conditions['c%d']", n)
			}
			rules = append(rules, rule)
			n++
		}
		steps = append(steps, step{plugin: p, run: func(context.Context, *Request) error { return nil }, rules: p.rules(Handler{Rules: rules}), namespace: own})
	}
	return steps
}

func randomRequest(r *rand.Rand) *admissionv1.AdmissionRequest {
	ar := &admissionv1.AdmissionRequest{
		Operation: oneOf(r, admissionv1.Create, admissionv1.Update, admissionv1.Connect), SubResource: oneOf(r, "", "", "exec", "status", "binding"),
		Resource: metav1.GroupVersionResource{Group: oneOf(r, "", "", "apps", "other"), Version: "v1", Resource: oneOf(r, "pods", "pods", "nodes", "namespaces")},
	}
	if ar.Resource.Resource != "nodes" {
		ar.Namespace = oneOf(r, "ns", own)
	}
	return ar
}

func compileConditions(t *testing.T, conditions []admissionregistrationv1.MatchCondition) []cel.Program {
	t.Helper()
	env, err := cel.NewEnv(cel.Variable("request", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	var out []cel.Program
	for _, c := range conditions {
		ast, issues := env.Compile(c.Expression)
		if issues.Err() != nil {
			t.Fatalf("Compiling %s: %v", c.Expression, issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, program)
	}
	return out
}

// evaluate evaluates all conditions like the API server, with a request that omits empty
// fields.
func evaluate(t *testing.T, programs []cel.Program, ar *admissionv1.AdmissionRequest, conditions map[string]any) bool {
	t.Helper()
	request := map[string]any{
		"operation": string(ar.Operation), "conditions": conditions,
		"resource": map[string]any{"group": ar.Resource.Group, "version": ar.Resource.Version, "resource": ar.Resource.Resource},
	}
	for name, value := range map[string]string{"namespace": ar.Namespace, "subResource": ar.SubResource} {
		if value != "" {
			request[name] = value
		}
	}
	for _, program := range programs {
		out, _, err := program.Eval(map[string]any{"request": request})
		if err != nil {
			t.Fatalf("Evaluating for %v: %v", request, err)
		}
		if out.Value() != true {
			return false
		}
	}
	return true
}

// matchesAny matches rules like the API server, and rejects redundant rules.
func matchesAny(rules []admissionregistrationv1.RuleWithOperations, ar *admissionv1.AdmissionRequest) bool {
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		rule := Rule{Group: r.APIGroups[0], Resources: r.Resources, Scope: *r.Scope}
		for _, op := range r.Operations {
			rule.Operations = append(rule.Operations, admissionv1.Operation(op))
		}
		return rule.matches(ar)
	})
}

func TestRandomRulesAreValid(t *testing.T) {
	first := seed.First(t)
	for seed := first; seed < first+300; seed++ {
		for _, e := range (Family{Name: "test"}).entries(randomSteps(rand.New(rand.NewSource(seed))), own) {
			for _, r := range e.rules {
				stars := slices.Contains(r.Resources, "*/*") || slices.Contains(r.Resources, "*")
				plain := slices.ContainsFunc(r.Resources, func(s string) bool { return !strings.Contains(s, "/") && s != "*" })
				if len(r.Operations) == 0 || (slices.Contains(r.Resources, "*/*") && len(r.Resources) > 1) || (stars && plain) {
					t.Errorf("Seed %d: the API server would refuse %+v", seed, r)
				}
			}
		}
	}
}
