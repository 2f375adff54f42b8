// Package exclusions knows the requests that a webhook does not get by a wildcard, because the cluster or Postern itself
// could not start without them.
package exclusions

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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

// exclusion keeps a webhook from blocking the cluster or Postern itself. It applies only if the rules match the
// resource by a wildcard. A rule that names the resource is not restricted.
type exclusion struct {
	name, group, resource string
	expression            string
}

func list() []exclusion {
	return []exclusion{
		// The heartbeats of nodes, and the leader elections of controllers.
		{"exclude-leases", "coordination.k8s.io", "leases", `!(request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')`},
		// API servers send reviews while they decide requests, including requests of Postern.
		{"exclude-authentication-reviews", "authentication.k8s.io", "*", `request.resource.group != 'authentication.k8s.io'`},
		{"exclude-authorization-reviews", "authorization.k8s.io", "*", `request.resource.group != 'authorization.k8s.io'`},
		// Every action creates events, so they would multiply the calls.
		{"exclude-core-events", "", "events", `!(request.resource.group == '' && request.resource.resource == 'events')`},
		{"exclude-events", "events.k8s.io", "events", `request.resource.group != 'events.k8s.io'`},
		// Postern's own pods need a node and a Service.
		{"exclude-bindings", "", "pods/binding", `!(request.resource.group == '' && request.resource.resource == 'pods' && has(request.subResource) && request.subResource == 'binding')`},
		{"exclude-endpoints", "", "endpoints", `!(request.resource.group == '' && request.resource.resource == 'endpoints')`},
		{"exclude-endpointslices", "discovery.k8s.io", "endpointslices", `!(request.resource.group == 'discovery.k8s.io' && request.resource.resource == 'endpointslices')`},
		// A node must join the cluster before it can run Postern.
		{"exclude-new-nodes", "", "nodes", `!(request.resource.group == '' && request.resource.resource == 'nodes' && request.operation == 'CREATE')`},
		{"exclude-certificate-requests", "certificates.k8s.io", "certificatesigningrequests", `!(request.resource.group == 'certificates.k8s.io' && request.resource.resource == 'certificatesigningrequests')`},
		// The kubelet requests a token before it can start Postern's own pod.
		{"exclude-tokens", "", "serviceaccounts/token", `!(request.resource.group == '' && request.resource.resource == 'serviceaccounts' && has(request.subResource) && request.subResource == 'token')`},
	}
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
