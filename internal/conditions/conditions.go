// Package conditions evaluates the match conditions of webhooks as kube-apiserver does: with its compiler, its cost
// budget, and its view of the request. Only tests import it, because CEL is as large as all of Postern.
package conditions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	celtypes "github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/postern-dev/postern/pkg/router"
)

// Compiler compiles conditions twice: like the newest kube-apiserver for a stored
// configuration, and like the oldest supported kube-apiserver for a new configuration. It keeps what it compiled, because
// most cases of a plugin have the same conditions and their compilation takes most of the time of a case.
type Compiler struct {
	newest, oldest cel.ConditionCompiler

	mu       sync.Mutex
	compiled map[string]cel.ConditionEvaluator // by the conditions in JSON
}

// NewCompiler returns a Compiler. Its creation is slow, so tests share it.
func NewCompiler() *Compiler {
	return &Compiler{
		newest: cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())),
		// Kubernetes 1.28 accepts in a new object only functions that 1.27 also has.
		oldest:   cel.NewConditionCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 27))),
		compiled: map[string]cel.ConditionEvaluator{},
	}
}

// Webhook contains the compiled rules and conditions of a webhook.
type Webhook struct {
	Name       string
	Rules      []admissionregistrationv1.RuleWithOperations
	Conditions []admissionregistrationv1.MatchCondition
	evaluator  cel.ConditionEvaluator
}

// Of compiles the webhooks of one phase of a service. Its error names the conditions that an API server would reject.
func (c *Compiler) Of(s router.AdmissionService, phase string) ([]*Webhook, error) {
	var out []*Webhook
	var errs []error
	add := func(name string, rules []admissionregistrationv1.RuleWithOperations, conditions []admissionregistrationv1.MatchCondition) {
		w, err := c.Compile(name, rules, conditions)
		out, errs = append(out, w), append(errs, err)
	}
	switch {
	case phase == router.PhaseMutate && s.MutatingConfig != nil:
		for _, w := range s.MutatingConfig.Webhooks {
			add(w.Name, w.Rules, w.MatchConditions)
		}
	case phase == router.PhaseValidate && s.ValidatingConfig != nil:
		for _, w := range s.ValidatingConfig.Webhooks {
			add(w.Name, w.Rules, w.MatchConditions)
		}
	}
	return out, errors.Join(errs...)
}

// Compile compiles the conditions of one webhook.
func (c *Compiler) Compile(name string, rules []admissionregistrationv1.RuleWithOperations, conditions []admissionregistrationv1.MatchCondition) (*Webhook, error) {
	evaluator, err := c.evaluator(conditions)
	if err != nil {
		return nil, fmt.Errorf("compiling the conditions of %s: %w", name, err)
	}
	return &Webhook{Name: name, Rules: rules, Conditions: conditions, evaluator: evaluator}, nil
}

// evaluator returns the evaluator of the conditions. An evaluator has no state, so webhooks share it.
func (c *Compiler) evaluator(conditions []admissionregistrationv1.MatchCondition) (cel.ConditionEvaluator, error) {
	key, err := json.Marshal(conditions)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.compiled[string(key)]; ok {
		return e, nil
	}
	expressions := make([]cel.ExpressionAccessor, 0, len(conditions))
	for i := range conditions {
		expressions = append(expressions, (*matchconditions.MatchCondition)(&conditions[i]))
	}
	variables := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	e := c.newest.CompileCondition(expressions, variables, environment.StoredExpressions)
	oldest := c.oldest.CompileCondition(expressions, variables, environment.NewExpressions)
	if err := errors.Join(slices.Concat(e.CompilationErrors(), oldest.CompilationErrors())...); err != nil {
		return nil, err
	}
	c.compiled[string(key)] = e
	return e, nil
}

// Result is the result of the rules and the conditions for a request.
type Result struct {
	// Addressed reports whether the rules match. If they do not, the other fields have no
	// meaning.
	Addressed bool
	// Called reports whether the rules match and all conditions are true.
	Called bool
	// Cost is the CEL cost of the conditions. Its limit is MaxCost.
	Cost int64
}

// MaxCost is the cost limit of all conditions of a webhook together. The limit of a single
// condition is celconfig.PerCallLimit.
const MaxCost = celconfig.RuntimeCELCostBudgetMatchConditions

// Match evaluates the conditions for a request. If it returns an error, the API server would
// deny or admit the request by the failure policy.
func (w *Webhook) Match(ctx context.Context, r *Request, authz authorizer.UnconditionalAuthorizer) (Result, error) {
	matches := func(rule admissionregistrationv1.RuleWithOperations) bool {
		return (&rules.Matcher{Rule: rule, Attr: r.attributes}).Matches()
	}
	if !slices.ContainsFunc(w.Rules, matches) {
		return Result{}, nil
	}
	kind, resource := metav1.GroupVersionKind(r.attributes.VersionedKind), metav1.GroupVersionResource(r.attributes.GetResource())
	request := cel.CreateAdmissionRequest(r.attributes.Attributes, resource, kind)
	evaluated, left, err := w.evaluator.ForInput(ctx, r.attributes, request, cel.OptionalVariableBindings{Authorizer: authz}, nil, MaxCost)
	if err != nil {
		return Result{Addressed: true}, fmt.Errorf("evaluating the conditions of %s: %w", w.Name, err)
	}
	result := Result{Addressed: true, Called: true, Cost: MaxCost - left}
	var errs []error
	for _, e := range evaluated {
		if e.EvalResult == celtypes.False {
			result.Called = false
			return result, nil
		}
		errs = append(errs, e.Error)
	}
	if err := errors.Join(errs...); err != nil {
		return result, fmt.Errorf("evaluating the conditions of %s: %w", w.Name, err)
	}
	return result, nil
}

// Match evaluates the conditions of several webhooks for a request. The result says whether any webhook is addressed or
// called, and the total cost.
func Match(ctx context.Context, webhooks []*Webhook, ar *admissionv1.AdmissionRequest, authz authorizer.UnconditionalAuthorizer) (Result, error) {
	r, err := NewRequest(ar)
	if err != nil {
		return Result{}, err
	}
	return MatchDecoded(ctx, webhooks, r, authz)
}

// MatchDecoded is Match for a request that is decoded already.
func MatchDecoded(ctx context.Context, webhooks []*Webhook, r *Request, authz authorizer.UnconditionalAuthorizer) (Result, error) {
	var all Result
	var errs []error
	for _, w := range webhooks {
		result, err := w.Match(ctx, r, authz)
		all = Result{all.Addressed || result.Addressed, all.Called || result.Called, all.Cost + result.Cost}
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}
