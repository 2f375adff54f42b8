package admit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Domain ends the names of the webhooks, ConfigPrefix starts those of the
// configurations.
const (
	Domain       = "postern.dev"
	ConfigPrefix = "postern-"
)

func (f Family) mutatingConfig(steps []step) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ConfigPrefix + f.Name}}
	for _, e := range f.entries(steps) {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: e.name, Rules: e.rules, FailurePolicy: &e.policy, SideEffects: &e.sideEffects, MatchConditions: e.conditions,
			MatchPolicy: ptr.To(admissionregistrationv1.Equivalent),
		})
	}
	return c
}

func (f Family) validatingConfig(steps []step) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ConfigPrefix + f.Name}}
	for _, e := range f.entries(steps) {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: e.name, Rules: e.rules, FailurePolicy: &e.policy, SideEffects: &e.sideEffects, MatchConditions: e.conditions,
			MatchPolicy: ptr.To(admissionregistrationv1.Equivalent),
		})
	}
	return c
}

// entry is one webhook of a configuration. There is one for each failure policy
// that the steps have, and no more: the API server calls a mutating webhook again
// when a later one changed the object, even one of our own.
type entry struct {
	name        string
	policy      admissionregistrationv1.FailurePolicyType
	sideEffects admissionregistrationv1.SideEffectClass
	rules       []admissionregistrationv1.RuleWithOperations
	conditions  []admissionregistrationv1.MatchCondition
}

func (f Family) entries(steps []step) []entry {
	var out []entry
	for _, policy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
		e := entry{name: f.Name + "." + Domain, policy: policy, sideEffects: admissionregistrationv1.SideEffectClassNone}
		if policy == admissionregistrationv1.Ignore {
			e.name = f.Name + "-ignore." + Domain
		}
		var rules []Rule
		for _, s := range steps {
			if cmp.Or(s.plugin.FailurePolicy, admissionregistrationv1.Fail) != policy {
				continue
			}
			rules = append(rules, s.rules...)
			if s.plugin.SideEffects {
				e.sideEffects = admissionregistrationv1.SideEffectClassNoneOnDryRun
			}
		}
		if len(rules) == 0 {
			continue
		}
		e.rules = union(rules)
		if condition := disjunction(rules); condition != "" {
			e.conditions = []admissionregistrationv1.MatchCondition{{Name: "something-to-do", Expression: condition}}
		}
		out = append(out, e)
	}
	return out
}

// atom is the smallest rule: one resource.
type atom struct {
	group, versions, resource string
	scope                     admissionregistrationv1.ScopeType
}

// atoms returns the resources of the rules, each with its operations in order.
func atoms(rules []Rule) map[atom][]admissionv1.Operation {
	out := map[atom][]admissionv1.Operation{}
	for _, r := range rules {
		for _, res := range r.Resources {
			a := atom{r.Group, strings.Join(r.versions(), ","), res, cmp.Or(r.Scope, admissionregistrationv1.AllScopes)}
			out[a] = append(out[a], r.Operations...)
		}
	}
	order := []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect}
	for a, ops := range out {
		out[a] = slices.DeleteFunc(slices.Clone(order), func(op admissionv1.Operation) bool { return !slices.Contains(ops, op) })
	}
	return out
}

// union returns rules that match exactly what the given ones match together, the
// same ones for the same requests whatever the order of plugins.
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
			return r.APIGroups[0] == a.group && strings.Join(r.APIVersions, ",") == a.versions && *r.Scope == a.scope && slices.Equal(r.Operations, ops)
		}
		if i := slices.IndexFunc(out, fits); i >= 0 {
			out[i].Resources = append(out[i].Resources, a.resource)
			continue
		}
		out = append(out, admissionregistrationv1.RuleWithOperations{Operations: ops, Rule: admissionregistrationv1.Rule{
			APIGroups: []string{a.group}, APIVersions: strings.Split(a.versions, ","), Resources: []string{a.resource}, Scope: &a.scope,
		}})
	}
	return out
}

// disjunction returns the CEL expression that is true where any of the rules has
// something to do, or "" if that is everywhere.
func disjunction(rules []Rule) string {
	unconditional := slices.DeleteFunc(slices.Clone(rules), func(r Rule) bool { return r.Condition != "" })
	always, all := atoms(unconditional), atoms(rules)
	everywhere := len(always) == len(all)
	for a, ops := range all {
		everywhere = everywhere && slices.Equal(always[a], ops)
	}
	if everywhere {
		return ""
	}
	var terms []string
	for _, r := range rules {
		term := r.guard(all)
		switch {
		case r.Condition != "" && term != "":
			term += " && (" + r.Condition + ")"
		case r.Condition != "":
			term = r.Condition
		}
		if term = "(" + term + ")"; !slices.Contains(terms, term) {
			terms = append(terms, term)
		}
	}
	return strings.Join(terms, " || ")
}

// guard is the CEL for the requests of the rule among those of all rules, "" if
// they are the same.
func (r Rule) guard(all map[atom][]admissionv1.Operation) string {
	own := atoms([]Rule{r})
	same := len(own) == len(all)
	for a, ops := range own {
		same = same && slices.Equal(all[a], ops)
	}
	if same {
		return ""
	}
	ops := make([]string, 0, len(r.Operations))
	for _, op := range r.Operations {
		ops = append(ops, "'"+string(op)+"'")
	}
	var resources []string
	for _, res := range r.Resources {
		main, sub, _ := strings.Cut(res, "/")
		var parts []string
		if main != "*" {
			parts = append(parts, fmt.Sprintf("request.resource.resource == '%s'", main))
		}
		if sub != "*" {
			parts = append(parts, fmt.Sprintf("(has(request.subResource) ? request.subResource : '') == '%s'", sub))
		}
		resources = append(resources, cmp.Or(strings.Join(parts, " && "), "true"))
	}
	guard := fmt.Sprintf("request.operation in [%s] && (%s)", strings.Join(ops, ", "), strings.Join(resources, " || "))
	if r.Group != "*" {
		guard = fmt.Sprintf("request.resource.group == '%s' && %s", r.Group, guard)
	}
	return guard
}
