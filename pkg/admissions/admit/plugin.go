// Package admit is the seam between plugins and the router: what an admission
// plugin is, what one request looks like to it, and the chain that makes the two
// AdmitFuncs of a service of an ordered list of plugins. It is the only package
// that knows both the review and the objects in it.
package admit

import (
	"context"
	"fmt"
	"reflect"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"
)

// Plugin describes one admission plugin. It is a constant: what differs from one
// process to the next comes in through New.
type Plugin struct {
	// Name is kube-apiserver's, such as PodNodeSelector.
	Name string
	// Rules are the requests that the plugin sees. The chain filters by them, and
	// they become the rules of the webhooks.
	Rules []Rule
	// SideEffects says that it writes outside the object, except on dry run.
	SideEffects bool
	// FailurePolicy is Fail where not set. A rule may have another one.
	FailurePolicy admissionregistrationv1.FailurePolicyType
	// Features are the gates that it looks at, with kube-apiserver's defaults.
	Features map[featuregate.Feature]featuregate.FeatureSpec
	// Flags are those of kube-apiserver that configure it, for plugins that have no
	// file. They are flags of the process; Deps has their values.
	Flags []Flag
	// New makes the plugin of its dependencies and its configuration, which is
	// nil where there is none. An error stops the start of the process.
	New func(Deps, []byte) (Handler, error)
}

// Flag is a flag of the process that belongs to a plugin.
type Flag struct {
	Name, Default, Usage string
}

// Handler is a plugin at work. A nil func is a phase it takes no part in.
type Handler struct {
	Mutate, Validate Func
	// Rules are requests that its configuration asks for, besides the Plugin's.
	Rules []Rule
}

// Func looks at one request and returns nil to let it pass. A policy's no is an
// error made by this package or by k8s.io/apimachinery/pkg/api/errors with a code
// below 500; any other error says that the plugin could not decide. Only Mutate
// may change Request.Object.
type Func func(context.Context, *Request) error

// AuthorizeFunc asks the API server whether it would allow a request.
type AuthorizeFunc func(context.Context, authorizationv1.SubjectAccessReviewSpec) (Decision, error)

// Decision is the answer to an access review.
type Decision struct {
	Allowed bool
	Reason  string
	// EvaluationError is what an authorizer of the API server ran into. There may be
	// an answer all the same.
	EvaluationError string
}

// Deps is all that a plugin may have of the process. Informers that New asks for
// are synced before the first request.
type Deps struct {
	Client     kubernetes.Interface
	Dynamic    dynamic.Interface
	Informers  informers.SharedInformerFactory
	RESTMapper meta.RESTMapper
	Authorize  AuthorizeFunc
	Features   featuregate.FeatureGate
	Clock      clock.Clock
	// Go runs f beside the requests, from when the API server has answered until
	// the process ends. New may call it.
	Go func(f func(context.Context))
	// Flags has the values of plugins' flags that are not at their default.
	Flags map[string]string
	// Metrics times the plugins. Nil counts nothing.
	Metrics *Metrics
}

// Flag returns the value of a flag. Plugins parse it in New.
func (d Deps) Flag(f Flag) string {
	if value, ok := d.Flags[f.Name]; ok {
		return value
	}
	return f.Default
}

// Typed makes a Func of f for plugins that see a single type. On DELETE obj is
// the zero T, on CREATE old. An object of another type is answered 400 with
// kube-apiserver's words; an old object of another type is passed as the zero T,
// as the plugins of kube-apiserver take it.
func Typed[T runtime.Object](f func(ctx context.Context, r *Request, obj, old T) error) Func {
	kind := reflect.TypeFor[T]().Elem().Name()
	return func(ctx context.Context, r *Request) error {
		obj, ok := r.Object.(T)
		if !ok && (r.Object != nil || r.Operation != "DELETE") {
			return BadRequest(fmt.Errorf("Resource was marked with kind %s but was unable to be converted", kind)) //nolint:staticcheck // kube-apiserver's words
		}
		old, _ := r.OldObject.(T)
		return f(ctx, r, obj, old)
	}
}
