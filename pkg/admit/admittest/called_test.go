package admittest_test

import (
	"context"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

// TestConditions covers match conditions, which the API server evaluates before it calls a
// plugin. A false condition bypasses the plugin.
func TestConditions(t *testing.T) {
	denied := create("deny: x") + `want: {allowed: false, message: 'pods "web" is forbidden: denied by alice'}`
	changed := create("label: once") + "want: {allowed: true, object: " +
		strings.Replace(pod("label: once"), "metadata: {", "metadata: {labels: {seen: \"true\"}, ", 1) + "}"
	for name, tc := range map[string]struct{ condition, yaml, wrong string }{
		"true, denied":             {"true", denied, ""},
		"false, denied":            {"false", denied, "would not call, because the condition is false or no rule matches, but the plugin denies"},
		"false, changed":           {"false", changed, "but the plugin changes the object"},
		"false, warned":            {"false", create("warn: careful") + "want: {allowed: true, warnings: [careful], audit: {warned: careful}}", "but the plugin says"},
		"false, wrote":             {"false", create("create: new") + "want: {allowed: true, writes: [{verb: create, resource: namespaces, name: new}]}", "but the plugin writes"},
		"false, could not decide":  {"false", create("namespace: shop") + "want: {failure: 500}", "but the plugin fails"},
		"false, nothing to do":     {"false", create("") + "want: {allowed: true}", ""},
		"a syntax error":           {"object.(", denied, "compiling the conditions"},
		"a type error":             {"1 == 'one'", denied, "compiling the conditions"},
		"a field that may lack":    {"object.spec.nodeName == 'n'", denied, "evaluating the conditions"},
		"what the object has":      {"object.metadata.annotations['deny'] == 'x'", denied, ""},
		"what the object has not":  {"object.metadata.annotations['deny'] == 'y'", denied, "would not call"},
		"the authorizer says yes":  {"authorizer.group('').resource('things').check('use').allowed()", "authorize: [{verb: use, resource: things}]\n" + denied, ""},
		"the authorizer says no":   {"authorizer.group('').resource('things').check('use').allowed()", denied, "would not call"},
		"the object of validation": {"request.operation == 'CREATE' && !has(object.metadata.labels)", changed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := obedient()
			for i := range p.Rules {
				p.Rules[i] = p.Rules[i].If(tc.condition)
			}
			checkWrong(t, p, tc.yaml, tc.wrong)
		})
	}
}

// TestContract covers funcs that change objects that they must not change.
func TestContract(t *testing.T) {
	rename := func(pod *corev1.Pod) {
		if pod != nil {
			pod.Spec.NodeName = "changed"
		}
	}
	update := "request: {operation: UPDATE, oldObject: " + pod("") + ", object: " + pod("") + "}\nwant: {allowed: true}"
	for name, tc := range map[string]struct {
		handler func(f admit.Func) admit.Handler
		change  func(pod, old *corev1.Pod)
		wrong   string
	}{
		"Validate changes the object":     {func(f admit.Func) admit.Handler { return admit.Handler{Validate: f} }, func(pod, _ *corev1.Pod) { rename(pod) }, "Validate changed the object"},
		"Validate changes the old object": {func(f admit.Func) admit.Handler { return admit.Handler{Validate: f} }, func(_, old *corev1.Pod) { rename(old) }, "Validate changed the old object"},
		"Mutate changes the old object":   {func(f admit.Func) admit.Handler { return admit.Handler{Mutate: f} }, func(_, old *corev1.Pod) { rename(old) }, "Mutate changed the old object"},
		"nothing changes":                 {func(f admit.Func) admit.Handler { return admit.Handler{Mutate: f, Validate: f} }, func(_, _ *corev1.Pod) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			checkWrong(t, &admit.Plugin{
				Name: "P", Rules: []admit.Rule{admit.On("pods", admissionv1.Update)},
				New: func(admit.Deps, []byte) (admit.Handler, error) {
					return tc.handler(admit.Typed(func(_ context.Context, _ *admit.Request, pod, old *corev1.Pod) error {
						tc.change(pod, old)
						return nil
					})), nil
				},
			}, update, tc.wrong)
		})
	}
}

// checkWrong checks a case of a plugin. Check must report a difference that contains wrong, or
// no difference if wrong is empty.
func checkWrong(t *testing.T, p *admit.Plugin, yaml, wrong string) {
	t.Helper()
	c, err := admittest.Parse([]byte("# Why.\n" + yaml))
	if err != nil {
		t.Fatalf("Parsing the case: %v", err)
	}
	problems := strings.Join(c.Check(t.Context(), p), "; ")
	if wrong == "" && problems != "" {
		t.Errorf("Got problems %q, want none", problems)
	}
	if !strings.Contains(problems, wrong) || wrong != "" && problems == "" {
		t.Errorf("Got problems %q, want one with %q", problems, wrong)
	}
}
