// Package admit is the contract between plugins and the router. It defines the
// admission plugin and its view of a request, and the chain that turns an ordered
// list of plugins into the two AdmitFuncs of a service. Only this package knows
// both the AdmissionReview and the objects in it.
package admit

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
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
	"k8s.io/client-go/metadata"
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
	// Name has no leading dashes. Default is the value if the flag is not given, and Usage is the text of --help.
	Name, Default, Usage string
}

// Handler is a running plugin. A nil func means that the plugin takes no part in that phase. For a func that is not nil, the Plugin
// or the Handler has a rule.
type Handler struct {
	// Mutate is called in the mutating phase, and Validate in the validating phase.
	Mutate, Validate Func
	// Rules are rules that follow from the configuration, besides those of the Plugin.
	Rules []Rule
	// Warnings say which settings have no effect, for example because the API server runs the plugin too. The process logs
	// them when it starts, after the name of the plugin.
	Warnings []string
}

// Func admits a request by returning nil, and denies it by returning a *Denial. Any other error means that the plugin
// could not decide. Only Mutate may modify Request.Object.
type Func func(context.Context, *Request) error

// Deps are the dependencies that a plugin gets from the process. No field is nil unless its comment says so. The process
// starts the informers, and owns and closes all other dependencies.
type Deps struct {
	// Client calls the API server with the permissions of Postern.
	Client kubernetes.Interface
	// Dynamic calls the API server for resources without a type in k8s.io/api.
	Dynamic dynamic.Interface
	// Metadata reads only the metadata of objects, whose content users may have made large.
	Metadata metadata.Interface
	// Informers cache the resources of k8s.io/api. Informers that New requests are synced before the first admission
	// request. Cached objects are read-only and have no managed fields. A
	// ServiceAccount that takes more than 8 KiB of memory has the annotation TooLarge instead of its content; use Lookup.
	Informers informers.SharedInformerFactory
	// CustomInformers cache custom resources. The replica is not ready while the definition of one is missing.
	// OptionalInformers cache resources that a cluster may lack: without the definition they are synced and empty.
	CustomInformers, OptionalInformers dynamicinformer.DynamicSharedInformerFactory
	// RESTMapper maps kinds to the resources that the API server serves.
	RESTMapper meta.RESTMapper
	// Authorize creates an access review, or returns the cached answer of an earlier one.
	Authorize AuthorizeFunc
	// Features has the gates of Plugin.Features.
	Features featuregate.FeatureGate
	// Clock is the clock of the process, or a fake clock in tests.
	Clock clock.Clock
	// Timeout is the time-out with which the webhooks are registered, or 0 if it is not known. A request may have less
	// time: its user can shorten it (?timeout=).
	Timeout time.Duration
	// Go runs f in the background, from the API server's first answer to the end of the process. Only New may call Go.
	Go func(f func(context.Context))
	// Namespace is the namespace of Postern, or "" if it is not known.
	Namespace string
	// Flags holds the values of plugin flags, by name. The value of api-server-plugins is the list of the plugins that the
	// API server runs. A nil map stands for the defaults.
	Flags map[string]string
	// Metrics is the registry for the metrics of the plugin, or nil if there is none. Only New may register metrics.
	Metrics metrics.KubeRegistry
	// Observe is called after each call of a Func, with its duration and its error. If Mixed is true, a reconsidered denial is that
	// of the plugin that denied at last, with the whole duration. It may be nil. Plugins do not call it.
	Observe func(plugin string, phase Phase, r *Request, took time.Duration, err error)
	// Warn is called for each warning of a Handler. It may be nil. Plugins do not call it.
	Warn func(plugin, message string)
	// Mixed reports whether a replica with other plugins may get requests, as far as is known. Nil means that none may. Mended
	// is called for each plugin whose denial was dropped because another replica may not run it; it may be nil. Plugins call
	// neither.
	Mixed  func() bool
	Mended func(plugin string)
}

// Flag returns the value of a flag. Plugins parse the value in New.
func (d Deps) Flag(f Flag) string {
	if value, ok := d.Flags[f.Name]; ok {
		return value
	}
	return f.Default
}

// APIServerFlag is the name of the flag that lists the plugins that the API server runs.
const APIServerFlag = "api-server-plugins"

// APIServerRuns reports whether the API server runs a plugin itself, as far as the flags say. It runs its mutating plugins
// before it calls the first webhook, and again if a webhook changed the object, and its validating plugins besides the
// webhooks.
func (d Deps) APIServerRuns(plugin string) bool {
	return slices.Contains(strings.Split(d.Flags[APIServerFlag], ","), plugin)
}

// Kubernetes is the version of Kubernetes whose plugins and checks Postern has.
const Kubernetes = "1.37"

// Redundant returns a warning if addsNothing is true and the API server runs the plugin too. addsNothing means that the
// configuration adds nothing to what the API server's own plugin does. The plugin of an older API server may lack a check.
func (d Deps) Redundant(plugin string, addsNothing bool) []string {
	if !addsNothing || !d.APIServerRuns(plugin) {
		return nil
	}
	return []string{fmt.Sprintf("has no effect beside the API server's own plugin of Kubernetes %s; if the API server does not run it, list the plugins that it runs in --%s", Kubernetes, APIServerFlag)}
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
