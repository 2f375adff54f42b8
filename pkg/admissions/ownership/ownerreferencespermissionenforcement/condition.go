package ownerreferencespermissionenforcement

import (
	"fmt"
	"strings"

	"github.com/postern-dev/postern/pkg/admit"
)

// condition is true if the API server cannot decide alone that the request is allowed, and has to call. An
// access check in CEL costs 350,000, and an expression may cost 1,000,000, so an expression has at most two
// checks: on CREATE for one or two owners, on UPDATE for the object and one owner. One check for the right to
// finalize any object covers more owners, and owners whose kind only the API server's discovery knows.
//
// A list with one element stands for a variable: the CEL macro for variables is younger than the oldest
// Kubernetes version that Postern supports.
func condition() string {
	const withFunctions = `
		[references(object)].exists(refs, [references(oldObject)].exists(old,
			!isPodStatus() && refs != old && (
				isLong(refs) || isLong(old)
				|| (request.operation != 'CREATE' && !mayDelete())
				|| [refs.filter(r, blocks(r) && !(old.exists(o, uid(o) == uid(r)) && old.all(o, uid(o) != uid(r) || blocks(o))))].exists(added,
					added.size() > 0 && !(
						added.size() <= (request.operation == 'CREATE' ? 2 : 1) && added.all(r, isKnown(r))
							? added.all(r, mayFinalize(r))
							: mayFinalizeAnything())))))`
	expression := strings.NewReplacer(
		"references(object)", admit.CELList("object.metadata.ownerReferences"),
		"references(oldObject)", admit.CELList("oldObject.metadata.ownerReferences"),
		"isPodStatus()", "(request.resource.group == '' && request.resource.resource == 'pods' && has(request.subResource) && request.subResource == 'status')",
		"isLong(refs)", isLong("refs"), "isLong(old)", isLong("old"),
		"mayDelete()", "authorizer.requestResource.check('delete').allowed()",
		"blocks(r)", blocks("r"), "blocks(o)", blocks("o"), "uid(r)", uid("r"), "uid(o)", uid("o"),
		"isKnown(r)", isKnown("r"),
		"mayFinalize(r)", mayFinalizeKnown("r"),
		"mayFinalizeAnything()", "authorizer.group('*').resource('*').subresource('finalizers').name('*').check('update').allowed()",
	).Replace(withFunctions)
	return strings.Join(strings.Fields(expression), " ")
}

// isLong is the CEL expression for references that would cost too much to compare pairwise in CEL. A user
// chooses the number of references and the length of a UID.
func isLong(refs string) string {
	return "(" + refs + ".size() > 30 || " + refs + ".exists(r, " + uid("r") + ".size() > 100))"
}

func uid(ref string) string {
	return "(has(" + ref + ".uid) && type(" + ref + ".uid) == string ? " + ref + ".uid : '')"
}

func blocks(ref string) string {
	return "(has(" + ref + ".blockOwnerDeletion) && " + ref + ".blockOwnerDeletion == true)"
}

// isKnown is the CEL expression for a reference to an owner whose kind is in owners.
func isKnown(ref string) string {
	return strings.NewReplacer("REF", ref, "RESOURCES", resources()).Replace(
		"(has(REF.apiVersion) && has(REF.kind) && has(REF.name) && type(REF.name) == string" +
			" && REF.apiVersion in RESOURCES && REF.kind in RESOURCES[REF.apiVersion])")
}

// mayFinalizeKnown is mayFinalize in CEL, for an owner whose kind is in owners.
func mayFinalizeKnown(ref string) string {
	return strings.NewReplacer("REF", ref, "RESOURCES", resources(), "CLUSTER", clusterScoped()).Replace(
		"authorizer.group(REF.apiVersion.contains('/') ? REF.apiVersion.split('/')[0] : '').resource(RESOURCES[REF.apiVersion][REF.kind]).subresource('finalizers')" +
			".namespace(has(request.namespace) && !(REF.kind in CLUSTER) ? request.namespace : '').name(REF.name).check('update').allowed()")
}

// resources is the CEL map of the resources of owners, by API version and kind.
func resources() string {
	var versions []string
	kinds := map[string][]string{}
	for _, o := range owners() {
		if _, ok := kinds[o.apiVersion]; !ok {
			versions = append(versions, o.apiVersion)
		}
		kinds[o.apiVersion] = append(kinds[o.apiVersion], fmt.Sprintf("'%s': '%s'", o.kind, o.resource))
	}
	for i, v := range versions {
		versions[i] = fmt.Sprintf("'%s': {%s}", v, strings.Join(kinds[v], ", "))
	}
	return "{" + strings.Join(versions, ", ") + "}"
}

// clusterScoped is the CEL list of the kinds of owners that are cluster-scoped.
func clusterScoped() string {
	var kinds []string
	for _, o := range owners() {
		if o.cluster {
			kinds = append(kinds, o.kind)
		}
	}
	return admit.CELStrings(kinds)
}

// owner is a kind that often owns objects.
type owner struct {
	apiVersion, kind, resource string
	cluster                    bool
}

// owners are the kinds whose deletion the controllers of kube-controller-manager and other common controllers
// block. No kind is in two versions. The API server can look up these kinds in the condition instead of using
// discovery, so the controllers work without a call.
func owners() []owner {
	return []owner{
		{apiVersion: "v1", kind: "Endpoints", resource: "endpoints"},
		{apiVersion: "v1", kind: "Node", resource: "nodes", cluster: true},
		{apiVersion: "v1", kind: "Pod", resource: "pods"},
		{apiVersion: "v1", kind: "ReplicationController", resource: "replicationcontrollers"},
		{apiVersion: "v1", kind: "Service", resource: "services"},
		{apiVersion: "apps/v1", kind: "DaemonSet", resource: "daemonsets"},
		{apiVersion: "apps/v1", kind: "Deployment", resource: "deployments"},
		{apiVersion: "apps/v1", kind: "ReplicaSet", resource: "replicasets"},
		{apiVersion: "apps/v1", kind: "StatefulSet", resource: "statefulsets"},
		{apiVersion: "batch/v1", kind: "CronJob", resource: "cronjobs"},
		{apiVersion: "batch/v1", kind: "Job", resource: "jobs"},
		{apiVersion: "networking.k8s.io/v1", kind: "Ingress", resource: "ingresses"},
	}
}
