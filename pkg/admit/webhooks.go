package admit

import (
	"cmp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/internal/exclusions"
	"github.com/postern-dev/postern/pkg/router"
)

// Domain is the suffix of webhook names, and ConfigPrefix the prefix of the names of
// webhook configurations.
const (
	Domain       = "postern.dev"
	ConfigPrefix = "postern-"
)

func (f Family) mutatingConfig(steps []step, namespace string) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ConfigPrefix + f.Name}}
	for _, e := range f.entries(steps, namespace) {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: e.name, Rules: e.rules, FailurePolicy: &e.policy, SideEffects: &e.sideEffects, MatchConditions: e.conditions,
			MatchPolicy: new(cmp.Or(f.MatchPolicy, admissionregistrationv1.Equivalent)),
		})
		if f.ReinvocationPolicy != "" {
			c.Webhooks[len(c.Webhooks)-1].ReinvocationPolicy = &f.ReinvocationPolicy
		}
	}
	return c
}

func (f Family) validatingConfig(steps []step, namespace string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ConfigPrefix + f.Name}}
	for _, e := range f.entries(steps, namespace) {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: e.name, Rules: e.rules, FailurePolicy: &e.policy, SideEffects: &e.sideEffects, MatchConditions: e.conditions,
			MatchPolicy: new(cmp.Or(f.MatchPolicy, admissionregistrationv1.Equivalent)),
		})
	}
	return c
}

// entry is one webhook of a configuration. A configuration has one entry for each
// failure policy of its steps and no more, because the API server calls a mutating
// webhook again if a later one changed the object, even if both are Postern's. The
// rules for Postern's own namespace have entries of their own, and share no request
// with the others.
type entry struct {
	name        string
	policy      admissionregistrationv1.FailurePolicyType
	sideEffects admissionregistrationv1.SideEffectClass
	rules       []admissionregistrationv1.RuleWithOperations
	conditions  []admissionregistrationv1.MatchCondition
}

func (f Family) entries(steps []step, namespace string) []entry {
	own := withRules(steps, func(r Rule) bool { return r.OwnNamespace })
	out := entriesOf(f.Name+"-own", own)
	in := admissionregistrationv1.MatchCondition{Name: router.OwnNamespace, Expression: exclusions.AllBut(CELString(namespace))}
	for i := range out {
		for j := range out[i].conditions {
			// The API server evaluates all conditions, also after one that is false.
			out[i].conditions[j].Expression = in.Expression + " && (" + out[i].conditions[j].Expression + ")"
		}
		out[i].conditions = append([]admissionregistrationv1.MatchCondition{in}, out[i].conditions...)
	}
	return append(entriesOf(f.Name, withRules(steps, func(r Rule) bool { return !r.OwnNamespace })), out...)
}

// entriesOf returns the entries for all rules of the steps.
func entriesOf(name string, steps []step) []entry {
	closed, open := withPolicy(steps, admissionregistrationv1.Fail), withPolicy(steps, admissionregistrationv1.Ignore)
	failing := entry{name: name + "." + Domain, policy: admissionregistrationv1.Fail}
	ignored := entry{name: name + "-if-available." + Domain, policy: admissionregistrationv1.Ignore}
	out := slices.Concat(failing.calling(steps, closed, closed), ignored.calling(steps, open, open))
	if !overlapping(closed, open) {
		return out
	}
	// A call runs all plugins that see the request. To run no plugin twice, the second
	// entry is not called for a request for which the first one was, unless the call
	// changed the object so that the condition of the rule is false now.
	shared := slices.DeleteFunc(closed, func(r Rule) bool { return !slices.ContainsFunc(open, r.overlaps) })
	called, alsoExcluded := anyOf(shared, Rule.requests), exclusions.Of(out[1].rules)
	for _, e := range exclusions.Of(out[0].rules) {
		if !slices.Contains(alsoExcluded, e) {
			called = e.Expression + " && (" + called + ")"
		}
	}
	out[1].conditions = append(out[1].conditions, admissionregistrationv1.MatchCondition{Name: router.NotCalledAlready, Expression: "!(" + called + ")"})
	return out
}

// withRules returns the steps with those of their rules for which keep is true.
func withRules(steps []step, keep func(Rule) bool) []step {
	out := slices.Clone(steps)
	for i := range out {
		out[i].rules = slices.DeleteFunc(slices.Clone(out[i].rules), func(r Rule) bool { return !keep(r) })
	}
	return out
}

func withPolicy(steps []step, policy admissionregistrationv1.FailurePolicyType) []Rule {
	return slices.DeleteFunc(rulesOf(steps), func(r Rule) bool { return r.FailurePolicy != policy })
}

func rulesOf(steps []step) []Rule {
	var rules []Rule
	for _, s := range steps {
		rules = append(rules, s.rules...)
	}
	return rules
}

// calling returns the entry for the requests of some rules of the steps, with the
// conditions of the rules in reason. Without requests it returns nothing.
func (e entry) calling(steps []step, requests, reason []Rule) []entry {
	if len(requests) == 0 {
		return nil
	}
	e.rules = union(requests)
	e.sideEffects = admissionregistrationv1.SideEffectClassNone
	if slices.ContainsFunc(steps, func(s step) bool { return s.plugin.SideEffects && overlapping(s.rules, requests) }) {
		e.sideEffects = admissionregistrationv1.SideEffectClassNoneOnDryRun
	}
	if condition := disjunction(reason); condition != "" {
		e.conditions = []admissionregistrationv1.MatchCondition{{Name: router.SomethingToDo, Expression: condition}}
	}
	return []entry{e}
}

// atom is a rule for one resource, without its operations.
type atom struct {
	group, versions, resource string
	scope                     admissionregistrationv1.ScopeType
}

// atoms splits rules into atoms, each with its operations in a fixed order.
func atoms(rules []Rule) map[atom][]admissionv1.Operation {
	out := map[atom][]admissionv1.Operation{}
	for _, r := range rules {
		for _, res := range r.Resources {
			a := atom{r.Group, strings.Join(r.versions(), ","), res, cmp.Or(r.Scope, admissionregistrationv1.AllScopes)}
			out[a] = append(out[a], r.Operations...)
		}
	}
	for a, ops := range out {
		out[a] = slices.DeleteFunc(operations(), func(op admissionv1.Operation) bool { return !slices.Contains(ops, op) })
	}
	return out
}

// union returns the webhook rules that match exactly the requests of the given
// rules. The result does not depend on the order of the rules.
func union(rules []Rule) []admissionregistrationv1.RuleWithOperations {
	byResource := atoms(rules)
	keys := make([]atom, 0, len(byResource))
	for a := range byResource {
		keys = append(keys, a)
	}
	slices.SortFunc(keys, func(a, b atom) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.versions, b.versions), cmp.Compare(a.scope, b.scope), cmp.Compare(a.resource, b.resource))
	})
	var out []admissionregistrationv1.RuleWithOperations
	for _, a := range keys {
		var ops []admissionregistrationv1.OperationType
		for _, op := range byResource[a] {
			ops = append(ops, admissionregistrationv1.OperationType(op))
		}
		fits := func(r admissionregistrationv1.RuleWithOperations) bool {
			return isWild(r.Resources[0]) == isWild(a.resource) && r.APIGroups[0] == a.group && strings.Join(r.APIVersions, ",") == a.versions && *r.Scope == a.scope && slices.Equal(r.Operations, ops)
		}
		if i := slices.IndexFunc(out, fits); i >= 0 {
			out[i].Resources = append(out[i].Resources, a.resource)
			continue
		}
		out = append(out, admissionregistrationv1.RuleWithOperations{Operations: ops, Rule: admissionregistrationv1.Rule{
			APIGroups: []string{a.group}, APIVersions: strings.Split(a.versions, ","), Resources: []string{a.resource}, Scope: &a.scope,
		}})
	}
	for i := range out {
		out[i].Resources = withoutCovered(out[i].Resources)
	}
	return out
}

// withoutCovered removes the resources that a wildcard of the same list covers,
// because the API server refuses a rule with both. Resources by name have a rule of
// their own beside the wildcard: only a name overrides package
// exclusions.
func withoutCovered(resources []string) []string {
	return slices.DeleteFunc(slices.Clone(resources), func(covered string) bool {
		main, sub, _ := strings.Cut(covered, "/")
		return slices.ContainsFunc(resources, func(want string) bool { return want != covered && reaches(want, main, sub) })
	})
}

func isWild(resource string) bool { return strings.Contains(resource, "*") }
