// Package admit is the contract between plugins and the router. It defines the
// admission plugin and its view of a request, and the chain that turns an ordered
// list of plugins into the two AdmitFuncs of a service. Only this package knows
// both the AdmissionReview and the objects in it.
package admit

import (
	"context"
	"fmt"
	"reflect"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"
)

// Plugin describes one admission plugin. A Plugin is a constant: New gets everything
// that differs between processes.
type Plugin struct {
	// Name is the name of the plugin, such as PodNodeSelector.
	Name string
	// Rules match the requests that the plugin sees. The chain filters requests by
	// them, and the webhook configurations get their union.
	Rules []Rule
	// SideEffects is true if the plugin writes outside the object, except on dry run.
	SideEffects bool
	// FailurePolicy defaults to Fail. A rule may override it.
	FailurePolicy admissionregistrationv1.FailurePolicyType
	// Features are the feature gates that the plugin reads, with their defaults.
	Features map[featuregate.Feature]featuregate.FeatureSpec
	// Flags are process flags that configure the plugin. Deps has their values.
	Flags []Flag
	// Configurable is true if the plugin has an entry in the configuration file. For all other plugins the chain
	// refuses a configuration that has any field.
	Configurable bool
	// Access are the permissions that the plugin needs for its own requests. The rbac command prints roles with them.
	Access []rbacv1.PolicyRule
	// New makes the plugin from its dependencies and its configuration, which is nil if there is none. An error stops
	// the start of the process. A Handler without funcs registers nothing, for example because a feature gate is off.
	New func(Deps, []byte) (Handler, error)
}

// Flag is a flag of the process that belongs to a plugin.
type Flag struct {
	Name, Default, Usage string
}

// Handler is a running plugin. A nil func means that the plugin takes no part in that phase.
type Handler struct {
	Mutate, Validate Func
	// Rules are rules that follow from the configuration, besides those of the Plugin.
	Rules []Rule
}

// Func admits a request by returning nil, and denies it by returning a *Denial. Any other error means that the plugin
// could not decide. Only Mutate may modify Request.Object.
type Func func(context.Context, *Request) error

// Deps are the dependencies that a plugin gets from the process. Informers that New requests are synced before the
// first admission request.
type Deps struct {
	Client    kubernetes.Interface
	Dynamic   dynamic.Interface
	Informers informers.SharedInformerFactory
	// CustomInformers are for custom resources. An optional one is synced and has no object while its definition is missing.
	CustomInformers, OptionalInformers dynamicinformer.DynamicSharedInformerFactory
	RESTMapper                         meta.RESTMapper
	Authorize                          AuthorizeFunc
	Features                           featuregate.FeatureGate
	Clock                              clock.Clock
	// Timeout is the time-out with which the webhooks are registered, or 0 if it is not known. A request may have less
	// time: its user can shorten it (?timeout=).
	Timeout time.Duration
	// Go runs f in the background, from the API server's first answer to the end of the process. Only New may call Go.
	Go func(f func(context.Context))
	// Flags holds the values of plugin flags, by name, and of api-server-plugins the names of the plugins.
	Flags map[string]string
	// Metrics, unless nil, is where New registers the metrics of the plugin.
	Metrics metrics.KubeRegistry
	// Observe, unless nil, is called after each call of a Func, with its duration and its error.
	Observe func(plugin string, phase Phase, r *Request, took time.Duration, err error)
	// RunsEverywhere, unless nil, reports whether every living replica runs the plugin.
	RunsEverywhere func(plugin string) bool
}

// Flag returns the value of a flag. Plugins parse the value in New.
func (d Deps) Flag(f Flag) string {
	if value, ok := d.Flags[f.Name]; ok {
		return value
	}
	return f.Default
}

// Typed returns a Func for a plugin that sees a single type. On DELETE obj is the zero T, on CREATE old is. Typed denies
// an object of another type with code 400 in the words of kube-apiserver. It passes an old object of another type as the
// zero T, as kube-apiserver's plugins do.
func Typed[T runtime.Object](f func(ctx context.Context, r *Request, obj, old T) error) Func {
	kind := reflect.TypeFor[T]().Elem().Name()
	return func(ctx context.Context, r *Request) error {
		obj, ok := r.Object.(T)
		if !ok && (r.Object != nil || r.Operation != "DELETE") {
			return Deny(apierrors.NewBadRequest(fmt.Sprintf("Resource was marked with kind %s but was unable to be converted", kind)))
		}
		old, _ := r.OldObject.(T)
		return f(ctx, r, obj, old)
	}
}
