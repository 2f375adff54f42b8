package router

import (
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Deployment is what the webhook configurations of all services have in common
// because it is a matter of how this Postern is installed.
type Deployment struct {
	// Namespace is Postern's own. It is exempt from every webhook, and owns the
	// configurations.
	Namespace string
	// Service and Port are where the API server finds us in a cluster.
	Service string
	Port    int32
	// URL is used instead of the Service where it is not empty, https://host:port.
	URL string
	// FailurePolicy, where not empty, is used for all webhooks.
	FailurePolicy admissionregistrationv1.FailurePolicyType
	// Timeout is the API server's, between 1 s and 30 s.
	Timeout time.Duration
	// ExemptNamespaces are left alone besides Namespace.
	ExemptNamespaces []string
}

const (
	// ManagedByLabel has ManagedBy as its value on everything that Postern
	// registers, and is how it finds what an earlier start registered.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// ManagedBy is that value.
	ManagedBy = "postern"
)

// clientConfig is how the API server reaches one half of a service.
func (d Deployment) clientConfig(path string, bundle []byte) admissionregistrationv1.WebhookClientConfig {
	c := admissionregistrationv1.WebhookClientConfig{CABundle: bundle}
	if d.URL != "" {
		c.URL = new(strings.TrimSuffix(d.URL, "/") + path)
		return c
	}
	c.Service = &admissionregistrationv1.ServiceReference{Namespace: d.Namespace, Name: d.Service, Path: &path, Port: &d.Port}
	return c
}

// mutating returns the complete configuration of a service's mutating half.
func (d Deployment) mutating(s AdmissionService, bundle []byte) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := s.MutatingConfig.DeepCopy()
	c.TypeMeta = metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"}
	label(&c.ObjectMeta)
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		w.ClientConfig = d.clientConfig(s.Path+MutatePath, bundle)
		w.MatchConditions = d.matchConditions(w.Rules, w.MatchConditions)
		w.FailurePolicy = d.failurePolicy(w.FailurePolicy)
		d.complete(&w.AdmissionReviewVersions, &w.TimeoutSeconds, &w.SideEffects)
		if w.ReinvocationPolicy == nil {
			// A plugin must see what later webhooks add, such as a sidecar.
			w.ReinvocationPolicy = ptr.To(admissionregistrationv1.IfNeededReinvocationPolicy)
		}
	}
	return c
}

// validating returns the complete configuration of a service's validating half.
func (d Deployment) validating(s AdmissionService, bundle []byte) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := s.ValidatingConfig.DeepCopy()
	c.TypeMeta = metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration"}
	label(&c.ObjectMeta)
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		w.ClientConfig = d.clientConfig(s.Path+ValidatePath, bundle)
		w.MatchConditions = d.matchConditions(w.Rules, w.MatchConditions)
		w.FailurePolicy = d.failurePolicy(w.FailurePolicy)
		d.complete(&w.AdmissionReviewVersions, &w.TimeoutSeconds, &w.SideEffects)
	}
	return c
}

func label(m *metav1.ObjectMeta) {
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	m.Labels[ManagedByLabel] = ManagedBy
}

func (d Deployment) failurePolicy(own *admissionregistrationv1.FailurePolicyType) *admissionregistrationv1.FailurePolicyType {
	if d.FailurePolicy != "" {
		return &d.FailurePolicy
	}
	return own
}

// complete fills in what has one right value, unless the service has said it.
func (d Deployment) complete(versions *[]string, timeout **int32, sideEffects **admissionregistrationv1.SideEffectClass) {
	if *versions == nil {
		*versions = []string{"v1"}
	}
	if *timeout == nil {
		*timeout = new(int32(d.Timeout / time.Second)) //nolint:gosec // it is at most 30
	}
	if *sideEffects == nil {
		*sideEffects = ptr.To(admissionregistrationv1.SideEffectClassNone)
	}
}

// exclusion keeps a webhook from standing in the way of the cluster, or of
// Postern itself. It is added where the rules reach the resource by a wildcard
// alone: a rule that names the resource means it.
type exclusion struct {
	name, group, resource string
	expression            string
}

func exclusions() []exclusion {
	return []exclusion{
		// The heartbeats of nodes, and the leader elections of controllers.
		{"exclude-leases", "coordination.k8s.io", "leases", `!(request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')`},
		// Reviews are asked while requests are decided, ours among them.
		{"exclude-authentication-reviews", "authentication.k8s.io", "*", `request.resource.group != 'authentication.k8s.io'`},
		{"exclude-authorization-reviews", "authorization.k8s.io", "*", `request.resource.group != 'authorization.k8s.io'`},
		// Everything that happens makes events: they would multiply the calls.
		{"exclude-core-events", "", "events", `!(request.resource.group == '' && request.resource.resource == 'events')`},
		{"exclude-events", "events.k8s.io", "events", `request.resource.group != 'events.k8s.io'`},
		// A pod of ours is of use on a node, and behind a Service.
		{"exclude-bindings", "", "pods/binding", `!(request.resource.group == '' && request.resource.resource == 'pods' && has(request.subResource) && request.subResource == 'binding')`},
		{"exclude-endpoints", "", "endpoints", `!(request.resource.group == '' && request.resource.resource == 'endpoints')`},
		{"exclude-endpointslices", "discovery.k8s.io", "endpointslices", `!(request.resource.group == 'discovery.k8s.io' && request.resource.resource == 'endpointslices')`},
		// A node has to join before it can run us.
		{"exclude-new-nodes", "", "nodes", `!(request.resource.group == '' && request.resource.resource == 'nodes' && request.operation == 'CREATE')`},
		{"exclude-certificate-requests", "certificates.k8s.io", "certificatesigningrequests", `!(request.resource.group == 'certificates.k8s.io' && request.resource.resource == 'certificatesigningrequests')`},
		// The kubelet asks for a token before it can start our own pod.
		{"exclude-tokens", "", "serviceaccounts/token", `!(request.resource.group == '' && request.resource.resource == 'serviceaccounts' && has(request.subResource) && request.subResource == 'token')`},
	}
}

// matchConditions puts the exclusions before a webhook's own conditions. They are
// conditions, not a namespaceSelector: that list can have only one owner, others
// (clouds) add to it, and a selector makes a 404 of a request in a namespace that
// does not exist.
func (d Deployment) matchConditions(rules []admissionregistrationv1.RuleWithOperations, own []admissionregistrationv1.MatchCondition) []admissionregistrationv1.MatchCondition {
	all := []admissionregistrationv1.MatchCondition{
		// The API server's loopback user makes the system namespaces, classes and
		// roles while it starts.
		{Name: "exclude-apiserver", Expression: `!(has(request.userInfo.username) && request.userInfo.username == 'system:apiserver')`},
		{Name: "exclude-namespaces", Expression: notInNamespaces(append([]string{d.Namespace}, d.ExemptNamespaces...))},
	}
	for _, e := range exclusions() {
		if wild(rules, e.group, e.resource) {
			all = append(all, admissionregistrationv1.MatchCondition{Name: e.name, Expression: e.expression})
		}
	}
	return append(all, own...)
}

// notInNamespaces also exempts the Namespace objects of that name, for which
// request.namespace is the name itself. Fields of the request that are empty do
// not exist in CEL, and what does not exist may only be asked for with has.
func notInNamespaces(names []string) string {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "" })
	slices.Sort(names)
	names = slices.Compact(names)
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = fmt.Sprintf("'%s'", n)
	}
	return fmt.Sprintf("!(has(request.namespace) && request.namespace in [%s])", strings.Join(quoted, ", "))
}

// wild reports whether the rules reach the resource ("*": any of the group)
// through a wildcard, and no rule names it.
func wild(rules []admissionregistrationv1.RuleWithOperations, group, resource string) bool {
	main, sub, _ := strings.Cut(resource, "/")
	reached := func(r admissionregistrationv1.RuleWithOperations) bool {
		if !slices.Contains(r.APIGroups, group) && !slices.Contains(r.APIGroups, "*") {
			return false
		}
		return slices.ContainsFunc(r.Resources, func(res string) bool {
			m, s, _ := strings.Cut(res, "/")
			return strings.Contains(res, "*") && (m == "*" || m == main) && (s == "*" || s == sub)
		})
	}
	named := func(r admissionregistrationv1.RuleWithOperations) bool {
		return resource != "*" && slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource)
	}
	return slices.ContainsFunc(rules, reached) && !slices.ContainsFunc(rules, named)
}
