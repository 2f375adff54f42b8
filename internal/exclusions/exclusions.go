// Package exclusions knows the requests that a webhook does not get: those by a wildcard without which the cluster or Postern
// itself could not start, those of the API server itself, and those in exempt namespaces. It makes the match conditions that
// exclude them, and evaluates these without CEL.
package exclusions

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Of returns the match conditions that exclude requests from a webhook with these rules.
func Of(rules []admissionregistrationv1.RuleWithOperations) []admissionregistrationv1.MatchCondition {
	var out []admissionregistrationv1.MatchCondition
	for _, e := range list() {
		if wild(rules, e.group, e.resource) {
			out = append(out, admissionregistrationv1.MatchCondition{Name: e.name, Expression: e.expression})
		}
	}
	return out
}

// apiServer is the loopback user of the API server.
const apiServer = "system:apiserver"

// APIServer returns the condition that excludes what the API server does itself: it creates the system namespaces, classes and
// roles during its start.
func APIServer() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{
		Name: "exclude-apiserver", Expression: `!(has(request.userInfo.username) && request.userInfo.username == '` + apiServer + `')`,
	}
}

// Empty fields of the request do not exist in CEL, so expressions test them with has.
const (
	beforeNames, afterNames = "!(has(request.namespace) && request.namespace in [", "])"
	beforeName              = "has(request.namespace) && request.namespace == "
)

// Namespaces returns the condition that excludes requests in namespaces. It also excludes the Namespace objects with these names:
// for a Namespace object, request.namespace is its name. Names are those of namespaces, which need no escaping.
func Namespaces(names []string) admissionregistrationv1.MatchCondition {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "" })
	slices.Sort(names)
	names = slices.Compact(names)
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return admissionregistrationv1.MatchCondition{Name: "exclude-namespaces", Expression: beforeNames + strings.Join(quoted, ", ") + afterNames}
}

// AllBut returns the expression that excludes all requests but those in one namespace, which is a CEL literal.
func AllBut(namespace string) string { return beforeName + namespace }

func quote(name string) string { return fmt.Sprintf("'%s'", name) }

// unquote returns the names of namespaces in CEL literals.
func unquote(literals []string) ([]string, bool) {
	if slices.Equal(literals, []string{""}) {
		return nil, true // An empty list.
	}
	names := make([]string, len(literals))
	for i, l := range literals {
		names[i] = strings.Trim(l, "'")
		if quote(names[i]) != l || len(validation.IsDNS1123Label(names[i])) > 0 {
			return nil, false
		}
	}
	return names, true
}

// Evaluate reports whether a match condition is true for a request. It knows the conditions that this package makes, and no other.
func Evaluate(c admissionregistrationv1.MatchCondition, ar *admissionv1.AdmissionRequest) (met, known bool) {
	if c.Expression == APIServer().Expression {
		return ar.UserInfo.Username != apiServer, true
	}
	if list, ok := strings.CutPrefix(c.Expression, beforeNames); ok {
		names, ok := unquote(strings.Split(strings.TrimSuffix(list, afterNames), ", "))
		return !slices.Contains(names, ar.Namespace), ok && c.Expression == Namespaces(names).Expression
	}
	if name, ok := strings.CutPrefix(c.Expression, beforeName); ok {
		names, ok := unquote([]string{name})
		return slices.Contains(names, ar.Namespace), ok
	}
	excludes, known := byExpression()[c.Expression]
	return known && !excludes(ar), known
}

// byExpression returns the funcs of the exclusions.
var byExpression = sync.OnceValue(func() map[string]func(*admissionv1.AdmissionRequest) bool {
	out := map[string]func(*admissionv1.AdmissionRequest) bool{}
	for _, e := range list() {
		out[e.expression] = e.excludes
	}
	return out
})

// exclusion keeps a webhook from blocking the cluster or Postern itself. It applies only if the rules match the
// resource by a wildcard. A rule that names the resource is not restricted.
type exclusion struct {
	name, group, resource string
	expression            string
	// excludes is the negation of the expression.
	excludes func(*admissionv1.AdmissionRequest) bool
}

func list() []exclusion {
	return []exclusion{
		// The heartbeats of nodes, and the leader elections of controllers.
		{"exclude-leases", "coordination.k8s.io", "leases", `!(request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')`, of("coordination.k8s.io", "leases")},
		// API servers send reviews while they decide requests, including requests of Postern.
		{"exclude-authentication-reviews", "authentication.k8s.io", "*", `request.resource.group != 'authentication.k8s.io'`, in("authentication.k8s.io")},
		{"exclude-authorization-reviews", "authorization.k8s.io", "*", `request.resource.group != 'authorization.k8s.io'`, in("authorization.k8s.io")},
		// Every action creates events, so they would multiply the calls.
		{"exclude-core-events", "", "events", `!(request.resource.group == '' && request.resource.resource == 'events')`, of("", "events")},
		{"exclude-events", "events.k8s.io", "events", `request.resource.group != 'events.k8s.io'`, in("events.k8s.io")},
		// Postern's own pods need a node and a Service.
		{"exclude-bindings", "", "pods/binding", `!(request.resource.group == '' && request.resource.resource == 'pods' && has(request.subResource) && request.subResource == 'binding')`, ofSub("pods", "binding")},
		{"exclude-endpoints", "", "endpoints", `!(request.resource.group == '' && request.resource.resource == 'endpoints')`, of("", "endpoints")},
		{"exclude-endpointslices", "discovery.k8s.io", "endpointslices", `!(request.resource.group == 'discovery.k8s.io' && request.resource.resource == 'endpointslices')`, of("discovery.k8s.io", "endpointslices")},
		// A node must join the cluster before it can run Postern.
		{"exclude-new-nodes", "", "nodes", `!(request.resource.group == '' && request.resource.resource == 'nodes' && request.operation == 'CREATE')`, isNewNode},
		{"exclude-certificate-requests", "certificates.k8s.io", "certificatesigningrequests", `!(request.resource.group == 'certificates.k8s.io' && request.resource.resource == 'certificatesigningrequests')`, of("certificates.k8s.io", "certificatesigningrequests")},
		// The kubelet requests a token before it can start Postern's own pod.
		{"exclude-tokens", "", "serviceaccounts/token", `!(request.resource.group == '' && request.resource.resource == 'serviceaccounts' && has(request.subResource) && request.subResource == 'token')`, ofSub("serviceaccounts", "token")},
	}
}

func in(group string) func(*admissionv1.AdmissionRequest) bool {
	return func(ar *admissionv1.AdmissionRequest) bool { return ar.Resource.Group == group }
}

// of returns a func for a resource with all of its subresources.
func of(group, resource string) func(*admissionv1.AdmissionRequest) bool {
	return func(ar *admissionv1.AdmissionRequest) bool {
		return ar.Resource.Group == group && ar.Resource.Resource == resource
	}
}

// ofSub returns a func for a subresource of the core API.
func ofSub(resource, sub string) func(*admissionv1.AdmissionRequest) bool {
	return func(ar *admissionv1.AdmissionRequest) bool { return of("", resource)(ar) && ar.SubResource == sub }
}

func isNewNode(ar *admissionv1.AdmissionRequest) bool {
	return of("", "nodes")(ar) && ar.Operation == admissionv1.Create
}

// wild reports whether the rules match the resource ("*": any of the group) by a wildcard, and no rule names
// the resource.
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
