package registration

import (
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/postern-dev/postern/internal/exclusions"
	"github.com/postern-dev/postern/pkg/router"
)

// Deployment holds the fields of the webhook configurations that depend on how Postern is installed. They are
// the same for all services.
type Deployment struct {
	// Namespace is the namespace of Postern. It owns the configurations. It is exempt from all webhooks but those that
	// are only for it (router.OwnNamespace).
	Namespace string
	// Service and Port are the address at which the API server calls Postern in a cluster.
	Service string
	Port    int32
	// URL replaces the Service if it is not empty. Its form is https://host:port.
	URL string
	// FailurePolicy, if not empty, applies to all webhooks. Fail does not apply to those that are only for Namespace,
	// because no node could start Postern.
	FailurePolicy admissionregistrationv1.FailurePolicyType
	// Timeout is the timeout of the API server's calls, between 1 s and 30 s.
	Timeout time.Duration
	// KeepCAs is how long a registered CA stays registered after it has left this replica's bundle. The default
	// is 5 minutes.
	KeepCAs time.Duration
	// ExemptNamespaces are exempt in addition to Namespace.
	ExemptNamespaces []string
}

const (
	// ManagedByLabel is the label, with the value ManagedBy, of every object that Postern registers.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// ManagedBy is the value of ManagedByLabel.
	ManagedBy = "postern"
	// NamespaceLabel is the label, with the namespace of Postern as its value, of every object that Postern
	// registers. Several Posterns in a cluster and other tools that use ManagedByLabel leave each other's objects
	// alone.
	NamespaceLabel = "postern.dev/namespace"
	// DefaultNamespace is the namespace of Postern by default.
	DefaultNamespace = "postern-system"
)

// Selector selects the objects that Postern has registered.
func (d Deployment) Selector() string {
	return labels.Set{ManagedByLabel: ManagedBy, NamespaceLabel: d.Namespace}.String()
}

// ConfigNames returns the names of the webhook configurations that Postern registers for configurations with the given
// names. One more configuration checks whether the API server can call Postern.
func (d Deployment) ConfigNames(names ...string) []string {
	var out []string
	for _, name := range append([]string{canaryName}, names...) {
		out = append(out, d.ConfigName(name))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ConfigName returns the name of a registered configuration. A Postern outside of the default namespace has names of
// its own, so that two Posterns can be installed in a cluster.
func (d Deployment) ConfigName(name string) string {
	if d.Namespace == DefaultNamespace || d.Namespace == "" {
		return name
	}
	return name + "-" + d.Namespace
}

func (d Deployment) keepCAs() time.Duration {
	if d.KeepCAs > 0 {
		return d.KeepCAs
	}
	return surplusTime
}

// endpoint holds the parts of a client config that may change while Postern runs: the segment before the paths, others that are
// left alone where they are registered, and the CA bundle.
type endpoint struct {
	segment string
	others  []string
	bundle  []byte
}

// clientConfig is how the API server reaches one half of a service.
func (d Deployment) clientConfig(path string, at endpoint) admissionregistrationv1.WebhookClientConfig {
	c := admissionregistrationv1.WebhookClientConfig{CABundle: at.bundle}
	path = prefix(at.segment) + path
	if d.URL != "" {
		c.URL = new(d.base() + path)
		return c
	}
	c.Service = &admissionregistrationv1.ServiceReference{Namespace: d.Namespace, Name: d.Service, Path: &path, Port: &d.Port}
	return c
}

// Registered returns the service with the configurations that the deployment registers for it, except for what only a process
// knows: how the API server reaches it.
func (d Deployment) Registered(s router.AdmissionService) router.AdmissionService {
	if s.MutatingConfig != nil {
		s.MutatingConfig = d.completeMutating(s.MutatingConfig)
	}
	if s.ValidatingConfig != nil {
		s.ValidatingConfig = d.completeValidating(s.ValidatingConfig)
	}
	return s
}

// mutating returns the complete configuration of a service's mutating half.
func (d Deployment) mutating(s router.AdmissionService, at endpoint) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := d.completeMutating(s.MutatingConfig)
	for i := range c.Webhooks {
		c.Webhooks[i].ClientConfig = d.clientConfig(s.Path+router.MutatePath, at)
	}
	return c
}

func (d Deployment) completeMutating(own *admissionregistrationv1.MutatingWebhookConfiguration) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := own.DeepCopy()
	c.TypeMeta = metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: mutatingKind}
	d.identify(&c.ObjectMeta)
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		w.MatchConditions = d.matchConditions(w.Rules, w.MatchConditions)
		w.FailurePolicy = d.failurePolicy(w.FailurePolicy, w.MatchConditions)
		d.complete(&w.AdmissionReviewVersions, &w.TimeoutSeconds, &w.SideEffects)
		matchAll(w.Rules, &w.MatchPolicy)
		// A plugin must see what later webhooks add, such as a sidecar.
		setDefault(&w.ReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy)
	}
	return c
}

// validating returns the complete configuration of a service's validating half.
func (d Deployment) validating(s router.AdmissionService, at endpoint) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := d.completeValidating(s.ValidatingConfig)
	for i := range c.Webhooks {
		c.Webhooks[i].ClientConfig = d.clientConfig(s.Path+router.ValidatePath, at)
	}
	return c
}

func (d Deployment) completeValidating(own *admissionregistrationv1.ValidatingWebhookConfiguration) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := own.DeepCopy()
	c.TypeMeta = metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: validatingKind}
	d.identify(&c.ObjectMeta)
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		w.MatchConditions = d.matchConditions(w.Rules, w.MatchConditions)
		w.FailurePolicy = d.failurePolicy(w.FailurePolicy, w.MatchConditions)
		d.complete(&w.AdmissionReviewVersions, &w.TimeoutSeconds, &w.SideEffects)
		matchAll(w.Rules, &w.MatchPolicy)
	}
	return c
}

// identify sets the name and the labels of a registered configuration.
func (d Deployment) identify(m *metav1.ObjectMeta) {
	m.Name = d.ConfigName(m.Name)
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	m.Labels[ManagedByLabel], m.Labels[NamespaceLabel] = ManagedBy, d.Namespace
}

func (d Deployment) failurePolicy(own *admissionregistrationv1.FailurePolicyType, conditions []admissionregistrationv1.MatchCondition) *admissionregistrationv1.FailurePolicyType {
	setDefault(&own, admissionregistrationv1.Fail)
	if d.FailurePolicy == "" || d.FailurePolicy == admissionregistrationv1.Fail && router.IsForOwnNamespace(conditions) {
		return own
	}
	return &d.FailurePolicy
}

// complete sets the fields that have one correct value, unless the service has set them.
func (d Deployment) complete(versions *[]string, timeout **int32, sideEffects **admissionregistrationv1.SideEffectClass) {
	if *versions == nil {
		*versions = []string{"v1"}
	}
	setDefault(timeout, int32(d.Timeout/time.Second)) //nolint:gosec // it is at most 30
	setDefault(sideEffects, admissionregistrationv1.SideEffectClassNone)
}

// matchAll sets the API server's defaults of the fields that restrict a webhook. What others write to a field that is not set
// would stay.
func matchAll(rules []admissionregistrationv1.RuleWithOperations, policy **admissionregistrationv1.MatchPolicyType) {
	setDefault(policy, admissionregistrationv1.Equivalent)
	for i := range rules {
		setDefault(&rules[i].Scope, admissionregistrationv1.AllScopes)
	}
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// matchConditions puts the exclusions before a webhook's own conditions. The exclusions are not a
// namespaceSelector for two reasons. Its list can have only one owner, but others (clouds) add to it. A
// selector also turns a request in a namespace that does not exist into a 404.
func (d Deployment) matchConditions(rules []admissionregistrationv1.RuleWithOperations, own []admissionregistrationv1.MatchCondition) []admissionregistrationv1.MatchCondition {
	all := []admissionregistrationv1.MatchCondition{exclusions.APIServer()}
	if !router.IsForOwnNamespace(own) {
		all = append(all, exclusions.Namespaces(append([]string{d.Namespace}, d.ExemptNamespaces...)))
	}
	return slices.Concat(all, exclusions.Of(rules), own)
}
