package admissions

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/postern-dev/postern/pkg/admit"
)

// conditional lists, by plugin and resources, the mutating rules for CREATE that may have a condition on the
// object, each with the reason.
func conditional() map[string]string {
	return map[string]string{
		// The validating rule for the same requests has the same condition, and denies the changes of
		// webhooks that are called later.
		"NodeRestriction nodes,nodes/*": "the rule denies and changes nothing",
		// Of the rules with both failure policies, one is called for each token.
		"NodeRestriction serviceaccounts/token": "the rule denies and changes nothing",
	}
}

var content = regexp.MustCompile(`\b(object|oldObject)\b`)

// TestMutatingRulesForCreateSeeWhatIsAddedLater requires mutating rules for CREATE to have no conditions on
// the object. The API server reinvokes a webhook after a later webhook changed the object, but only if it
// called the webhook in the first round.
func TestMutatingRulesForCreateSeeWhatIsAddedLater(t *testing.T) {
	found := map[string]bool{}
	for _, gates := range []gates{allGates(false), allGates(true)} {
		for name, condition := range contentConditions(t, gates) {
			if found[name] = true; conditional()[name] == "" {
				t.Errorf("%s: the mutating rule for CREATE has the condition %s, which may be false until a later webhook changes the object", name, condition)
			}
		}
	}
	for name := range conditional() {
		if !found[name] {
			t.Errorf("There is no such rule as %s", name)
		}
	}
}

// contentConditions returns the conditions on the object of mutating rules for
// CREATE, by plugin and resources.
func contentConditions(t *testing.T, gates gates) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, f := range Families() {
		for _, p := range f.Plugins {
			for _, r := range mutatingRules(t, gates, p) {
				if slices.Contains(r.Operations, admissionv1.Create) && content.MatchString(r.Condition) {
					out[p.Name+" "+strings.Join(r.Resources, ",")] = r.Condition
				}
			}
		}
	}
	return out
}

// mutatingRules returns the rules whose requests the plugin mutates.
func mutatingRules(t *testing.T, gates gates, p *admit.Plugin) []admit.Rule {
	t.Helper()
	var config []byte
	if text := needed()[p.Name]; text != "" {
		config = []byte(text)
	}
	h, err := p.New(depsWith(t, gates), config)
	if err != nil {
		t.Fatalf("Making %s: %v", p.Name, err)
	}
	if h.Mutate == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Concat(p.Rules, h.Rules), func(r admit.Rule) bool { return r.Phase == admit.Validating })
}

func TestContent(t *testing.T) {
	for condition, want := range map[string]bool{
		admit.CELList("object.spec.containers") + ".exists(c, true)":          true,
		"request.operation == 'UPDATE' || oldObject == null":                  true,
		"request.userInfo.username == 'x' && request.name == 'the-objective'": false,
	} {
		if got := content.MatchString(condition); got != want {
			t.Errorf("That %s looks at the object is %t, want %t", condition, got, want)
		}
	}
}
