package admit_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/internal/conditions"
	"github.com/postern-dev/postern/pkg/admit"
)

// nasty are texts with characters that have a meaning in CEL, in YAML or in a decoder.
func nasty() []string {
	return []string{
		"", "plain", "it's", `'`, `''`, `'''`, `"`, `"""`, `a"b'c`, `\`, `\\`, `\'`, `'\`, `\n`, `\x41`, `\u0041`, `\101`, "\n", "\r", "\r\n", "a\nb\rc", "\t",
		"\v\f\a\b", "\x00", "a\x00b", "\x7f", "\u0085", "\u2028", "\u2029", "\ufeff", "\ufffd", "😀", "é", "`", "`a`", "${a}", "// a", "r'a'", "%s%q",
		`' || true || '`, `' == '' || true || '' == '`, `') || true || ('`, `\' || true || \'`, `' in ['`, "'\n|| true ||'",
	}
}

func TestCELString(t *testing.T) {
	compiler := conditions.NewCompiler()
	for _, s := range nasty() {
		checkLiteral(t, compiler, s)
	}
	if got, want := admit.CELString("plain"), "'plain'"; got != want {
		t.Errorf("Got %s, want %s: registered conditions must not change", got, want)
	}
}

func TestCELStrings(t *testing.T) {
	compiler := conditions.NewCompiler()
	list := "request.name in " + admit.CELStrings(nasty()[1:])
	for _, s := range nasty()[1:] {
		if !holds(t, compiler, list, s) || holds(t, compiler, list, s+"x") {
			t.Errorf("The list with %q does not have exactly this text: %s", s, list)
		}
	}
}

func FuzzCELString(f *testing.F) {
	for _, s := range nasty() {
		f.Add(s)
	}
	compiler := conditions.NewCompiler()
	f.Fuzz(func(t *testing.T, s string) {
		// Text that is not UTF-8 is in no configuration and in no request: decoders of YAML refuse it, and those of JSON replace
		// it with U+FFFD, as CEL does. CEL limits the length of an expression.
		if !utf8.ValidString(s) || len(s) > 10_000 {
			t.Skip()
		}
		checkLiteral(t, compiler, s)
	})
}

// checkLiteral checks that the literal is equal to the text, and to no other one.
func checkLiteral(t *testing.T, compiler *conditions.Compiler, s string) {
	t.Helper()
	equal := "(has(request.name) ? request.name : '') == " + admit.CELString(s)
	if !holds(t, compiler, equal, s) {
		t.Errorf("%q: the literal %s is another text", s, admit.CELString(s))
	}
	if holds(t, compiler, equal, s+"x") {
		t.Errorf("%q: the literal %s is equal to another text", s, admit.CELString(s))
	}
}

// holds evaluates a condition for a request with a name.
func holds(t *testing.T, compiler *conditions.Compiler, condition, name string) bool {
	t.Helper()
	ar := &admissionv1.AdmissionRequest{Operation: create, Name: name, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}}
	webhook, err := compiler.Compile("test", []admissionregistrationv1.RuleWithOperations{wantRule("", []string{"pods"}, "CREATE")},
		[]admissionregistrationv1.MatchCondition{{Name: "test", Expression: condition}})
	if err != nil {
		t.Errorf("Compiling %s: %v", condition, err)
		return false
	}
	return called(t, webhook, ar)
}

func called(t *testing.T, webhook *conditions.Webhook, ar *admissionv1.AdmissionRequest) bool {
	t.Helper()
	r, err := conditions.NewRequest(ar)
	if err != nil {
		t.Fatalf("Making the request: %v", err)
	}
	result, err := webhook.Match(t.Context(), r, nil)
	if err != nil {
		t.Fatalf("Evaluating %+v: %v", webhook.Conditions, err)
	}
	return result.Called
}

// TestRuleWithQuotes has a rule with quotes in all texts that a configuration may contain. The other rule matches the other
// requests, so the condition alone tells them apart.
func TestRuleWithQuotes(t *testing.T) {
	const group, resource, sub, label, own = `it's`, `team's`, `st"at'us`, `o'team\`, `po's'tern`
	labelled := admit.CELString(label) + " in " + admit.CELValue("object.metadata.labels", "{}")
	rule := admit.Rule{Group: group, Resources: []string{resource + "/" + sub}, Operations: []admissionv1.Operation{create}, Condition: labelled}
	rest := admit.Rule{Group: "*", Resources: []string{"*/*"}, Operations: []admissionv1.Operation{create}, Condition: "false"}
	for name, c := range map[string]struct {
		rules     []admit.Rule
		namespace string
	}{
		"elsewhere":          {[]admit.Rule{rule, rest}, "shop"},
		"both policies":      {[]admit.Rule{rule.OrIgnore(), rest}, "shop"},
		"in Postern's own":   {[]admit.Rule{rule.InOwnNamespace(), rest.InOwnNamespace()}, own},
		"without the others": {[]admit.Rule{rule}, "shop"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serviceWith(t, admit.Deps{Namespace: own}, plugin("P", admit.Handler{Validate: pass}, c.rules...))
			webhooks, err := conditions.NewCompiler().Of(s, "validate")
			if err != nil {
				t.Fatalf("Compiling the webhooks: %v", err)
			}
			for _, r := range []struct {
				group, resource, sub, label string
				want                        bool
			}{
				{group, resource, sub, label, true},
				{group, resource, sub, "other", false},
				{group, resource, "other", label, false},
				{group, "other", sub, label, false},
				{"other", resource, sub, label, false},
			} {
				object, err := json.Marshal(map[string]any{
					"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"labels": map[string]string{r.label: ""}},
				})
				if err != nil {
					t.Fatal(err)
				}
				ar := &admissionv1.AdmissionRequest{
					Operation: create, Namespace: c.namespace, SubResource: r.sub, Object: runtime.RawExtension{Raw: object},
					Resource: metav1.GroupVersionResource{Group: r.group, Version: "v1", Resource: r.resource},
				}
				var got []string
				for _, w := range webhooks {
					if called(t, w, ar) {
						got = append(got, w.Name)
					}
				}
				if (len(got) == 1) != r.want || len(got) > 1 {
					t.Errorf("%s %s/%s with the label %s: called %s, want a call: %v", r.group, r.resource, r.sub, r.label, strings.Join(got, ", "), r.want)
				}
			}
		})
	}
}
