package parity_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
	"github.com/postern-dev/postern/pkg/router"
)

// TestConditions fails if the API server would not call a plugin that would mutate or deny the request, or
// could not evaluate its conditions. It does not check that a condition is ever false: a false condition only
// saves calls.
func TestConditions(t *testing.T) {
	for _, e := range entries(t) {
		if len(e.Steps) == 0 {
			continue
		}
		t.Run(e.name(), func(t *testing.T) {
			s := serve(t, e)
			defer s.Close()
			hooks := hooksByPhase(t, s)
			for i, step := range e.Steps {
				s.Clock.Step(step.After.Duration)
				if !sound(t, s, e.Case, hooks, requestOf(t, &step.Request)) {
					t.Errorf("Step %d is the one", i+1)
				}
			}
		})
	}
}

// sound sends a request through the phases of a case.
func sound(t *testing.T, s *admittest.Server, c *admittest.Case, hooks map[string][]hook, ar *admissionv1.AdmissionRequest) bool {
	t.Helper()
	ok := true
	for _, phase := range []string{router.PhaseMutate, router.PhaseValidate} {
		if !s.Has(phase) || (c.Phase != "" && c.Phase != phase) {
			continue
		}
		called := isCalled(t, hooks[phase], ar, accessReviews{s.Environment})
		s.ClearActions()
		resp, err := s.Post(t.Context(), phase, ar)
		if problem := acted(t, s, resp, err); problem != "" && !called {
			t.Errorf("The API server would not call to %s, but the plugin %s", phase, problem)
			ok = false
		}
		if err != nil || !resp.Allowed {
			break
		}
		if resp.Patch == nil {
			continue
		}
		if ar.Object.Raw, err = admittest.Apply(ar.Object.Raw, resp.Patch); err != nil {
			t.Fatalf("%s: %v", phase, err)
		}
	}
	return ok
}

// TestConditionsOnOtherRequests sends each plugin the requests of the cases of all other plugins. Those
// objects have shapes that the plugin's own cases lack.
func TestConditionsOnOtherRequests(t *testing.T) {
	all := entries(t)
	done := map[string]bool{}
	for _, e := range all {
		if len(e.Steps) == 0 || done[e.Plugin.Name] {
			continue
		}
		done[e.Plugin.Name] = true
		t.Run(e.Plugin.Name, func(t *testing.T) {
			s := serve(t, e)
			defer s.Close()
			for _, phase := range []string{router.PhaseMutate, router.PhaseValidate} {
				if s.Has(phase) {
					soundFor(t, s, phase, all)
				}
			}
		})
	}
}

// soundFor sends a phase of a plugin the requests for which the API server would not call it.
func soundFor(t *testing.T, s *admittest.Server, phase string, all []entry) {
	t.Helper()
	hooks := hooksOf(t, s.Service, phase)
	for _, e := range all {
		for i := range e.Steps {
			ar := requestOf(t, &e.Steps[i].Request)
			if !isAddressed(hooks, attributesOf(t, ar)) || isCalled(t, hooks, ar, accessReviews{s.Environment}) {
				continue
			}
			s.ClearActions()
			resp, err := s.Post(t.Context(), phase, ar)
			if problem := acted(t, s, resp, err); problem != "" {
				t.Errorf("The API server would not call to %s for %s, but the plugin %s", phase, e.name(), problem)
			}
		}
	}
}

func serve(t *testing.T, e entry) *admittest.Server {
	t.Helper()
	ctx := admittest.Context(t)
	s, err := e.Serve(ctx, e.Plugin)
	if err != nil {
		t.Fatalf("Serving the case: %v", err)
	}
	return s
}

// acted describes the plugin's mutation or denial, if any.
func acted(t *testing.T, s *admittest.Server, resp *admissionv1.AdmissionResponse, err error) string {
	t.Helper()
	writes, writesErr := s.Writes()
	switch {
	case writesErr != nil:
		t.Fatalf("Reading what was written: %v", writesErr)
	case err != nil:
		return fmt.Sprintf("fails: %v", err)
	case !resp.Allowed:
		return fmt.Sprintf("denies: %s", resp.Result.Message)
	case resp.Patch != nil:
		return fmt.Sprintf("patches: %s", resp.Patch)
	case len(resp.Warnings)+len(resp.AuditAnnotations) > 0:
		return fmt.Sprintf("says %q, %q", resp.Warnings, resp.AuditAnnotations)
	case len(writes) > 0:
		return fmt.Sprintf("writes: %v", writes)
	}
	return ""
}

// hook holds the fields that mutating and validating webhooks share.
type hook struct {
	webhook.WebhookAccessor
	rules []admissionregistrationv1.RuleWithOperations
}

// hooksByPhase returns the webhooks of a plugin. Compiling them is slow.
func hooksByPhase(t *testing.T, s *admittest.Server) map[string][]hook {
	t.Helper()
	out := map[string][]hook{}
	for _, phase := range []string{router.PhaseMutate, router.PhaseValidate} {
		if s.Has(phase) {
			out[phase] = hooksOf(t, s.Service, phase)
		}
	}
	return out
}

// hooksOf returns the webhooks of a phase. It fails the test if a condition does not compile.
func hooksOf(t *testing.T, s router.AdmissionService, phase string) []hook {
	t.Helper()
	var out []hook
	if phase == router.PhaseMutate {
		for i := range s.MutatingConfig.Webhooks {
			w := &s.MutatingConfig.Webhooks[i]
			compile(t, w.MatchConditions)
			out = append(out, hook{webhook.NewMutatingWebhookAccessor(w.Name, s.MutatingConfig.Name, w), w.Rules})
		}
		return out
	}
	for i := range s.ValidatingConfig.Webhooks {
		w := &s.ValidatingConfig.Webhooks[i]
		compile(t, w.MatchConditions)
		out = append(out, hook{webhook.NewValidatingWebhookAccessor(w.Name, s.ValidatingConfig.Name, w), w.Rules})
	}
	return out
}

// isAddressed reports whether the rules of any of the webhooks match a request.
func isAddressed(hooks []hook, a admission.Attributes) bool {
	return slices.ContainsFunc(hooks, func(h hook) bool { return h.addressed(a) })
}

func (h hook) addressed(a admission.Attributes) bool {
	return slices.ContainsFunc(h.rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return (&rules.Matcher{Rule: r, Attr: a}).Matches()
	})
}

// isCalled reports whether the API server would send the request to any of the
// webhooks.
func isCalled(t *testing.T, hooks []hook, ar *admissionv1.AdmissionRequest, authz authorizer.Authorizer) bool {
	t.Helper()
	called := false
	a := attributesOf(t, ar)
	for _, h := range hooks {
		if !h.addressed(a) {
			continue
		}
		result := match(t, h, a, schema.GroupVersionKind(ar.Kind), authz)
		if result.Error != nil {
			t.Errorf("Evaluating the conditions: %v", result.Error)
		}
		called = called || result.Matches
	}
	return called
}

// Compilers are expensive to make. The current one compiles stored expressions as kube-apiserver v1.37 does.
// The oldest one compiles new expressions as 1.28 does, which accepts only what 1.27 supports.
var (
	today  = sync.OnceValue(func() cel.ConditionCompiler { return compilerOf(environment.DefaultCompatibilityVersion()) })
	oldest = sync.OnceValue(func() cel.ConditionCompiler { return compilerOf(version.MajorMinor(1, 27)) })
)

func compilerOf(v *version.Version) cel.ConditionCompiler {
	return cel.NewConditionCompiler(environment.MustBaseEnvSet(v))
}

// match evaluates the conditions as kube-apiserver does.
func match(t *testing.T, h hook, a admission.Attributes, kind schema.GroupVersionKind, authz authorizer.Authorizer) matchconditions.MatchResult {
	t.Helper()
	versioned, err := admission.NewVersionedAttributes(a, kind, objectInterfaces())
	if err != nil {
		t.Fatalf("Converting the request: %v", err)
	}
	return h.GetCompiledMatcher(today()).Match(context.WithoutCancel(t.Context()), versioned, nil, authz)
}

// compile fails the test if the oldest supported version would refuse a condition.
func compile(t *testing.T, conditions []admissionregistrationv1.MatchCondition) {
	t.Helper()
	expressions := make([]cel.ExpressionAccessor, 0, len(conditions))
	for _, c := range conditions {
		expressions = append(expressions, (*matchconditions.MatchCondition)(&c))
	}
	compiled := oldest().CompileCondition(expressions, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	if err := errors.Join(compiled.CompilationErrors()...); err != nil {
		t.Errorf("Compiling the conditions: %v", err)
	}
}
