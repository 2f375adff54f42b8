package noderestriction

import (
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

const (
	create = admissionv1.Create
	update = admissionv1.Update
	remove = admissionv1.Delete
)

const (
	// isNode is the CEL for a request of a node.
	isNode = "has(request.userInfo.username) && request.userInfo.username.startsWith('" + userPrefix + "') && " +
		"has(request.userInfo.groups) && '" + usersGroup + "' in request.userInfo.groups"
	// self is the name of that node, what comes after the twelve characters of
	// userPrefix. It is empty for a user that is denied.
	self = "request.userInfo.username.substring(12)"
	// named is the name of the object of a request, other than one that creates it.
	named = "(has(request.name) ? request.name : '')"
	// sub is the subresource.
	sub = "(has(request.subResource) ? request.subResource : '')"
)

// rules returns the requests that nodes are restricted in. Most conditions are
// complete: the API server knows by them that a node does what it may, and calls
// only for what is denied, so that nobody misses anything while Postern is down. For
// the others it has to call, and what a node needs to join the cluster and to run
// pods on is let through then.
func rules() []admit.Rule {
	return inValidating(podRules(), nodeRules(), tokenRules(), certificateRules(), leaseRules(), sliceRules())
}

// featureRules returns those that depend on feature gates.
func featureRules(features featuregate.FeatureGate) []admit.Rule {
	return inValidating(claimRules(features.Enabled(expansionRecovery)), csiNodeRules(features.Enabled(csiVolumeHealth)))
}

func inValidating(lists ...[]admit.Rule) []admit.Rule {
	var out []admit.Rule
	for _, list := range lists {
		for _, r := range list {
			out = append(out, r.In(admit.Validating))
		}
	}
	return out
}

// unless is the CEL for requests of nodes that are not known to be fine. A user
// without the name of a node is never fine.
func unless(fine string) string {
	return fmt.Sprintf("%s && (%s == '' || !(%s))", isNode, self, fine)
}

// text is the CEL for a text at a path, which is empty where it is not there.
func text(path string) string { return admit.CELValue(path, "''") }

// unchanged is the CEL for a path that has the same value in both objects. What is
// not there is the same as otherwise.
func unchanged(path, otherwise string) string {
	return admit.CELValue("object."+path, otherwise) + " == " + admit.CELValue("oldObject."+path, otherwise)
}

// on is a rule for requests of all nodes.
func on(group string, resources []string, operations ...admissionv1.Operation) admit.Rule {
	return admit.Rule{Group: group, Resources: resources, Operations: operations, Condition: isNode}
}

func podRules() []admit.Rule {
	mine := text("oldObject.spec.nodeName") + " == " + self
	same := unchanged("metadata.labels", "{}") + " && " + unchanged("status.resourceClaimStatuses", "[]") + " && " +
		unchanged("status.extendedResourceClaimStatus", "null") + " && " + unchanged("status.nodeAllocatableResourceClaimStatuses", "[]")
	return []admit.Rule{
		// Mirror pods: the UID in them is that of the Node.
		on("", []string{"pods"}, create).OrIgnore(),
		// An eviction needs the pod. Nothing else may be created.
		on("", []string{
			"pods/attach", "pods/binding", "pods/ephemeralcontainers", "pods/eviction", "pods/exec", "pods/log",
			"pods/portforward", "pods/proxy", "pods/resize", "pods/status",
		}, create),
		on("", []string{"pods"}, remove).If(unless(named + " != '' && " + mine)),
		on("", []string{"pods/status"}, update).If(unless(mine + " && " + same)),
		on("", []string{"pods/*"}, update, remove).If(isNode + " && !(request.operation == 'DELETE' && " + sub + " == '') && " +
			"!(request.operation == 'UPDATE' && " + sub + " == 'status')"),
	}
}

func nodeRules() []admit.Rule {
	// They are named too, because a wildcard is not for new nodes.
	all := []string{"nodes", "nodes/*"}
	mine := named + " == " + self
	configSource := admit.CELValue("object.spec.configSource", "null")
	return []admit.Rule{
		on("", all, create).If(unless(mine + " && " + configSource + " == null && !" + celForbidsLabels("object", ""))),
		on("", all, update).If(unless(mine + " && (" + configSource + " == null || " + unchanged("spec.configSource", "null") + ") && " +
			unchanged("spec.taints", "[]") + " && " + unchanged("metadata.ownerReferences", "[]") + " && " +
			"(" + unchanged("metadata.labels", "{}") + " || !(" + celForbidsLabels("object", "oldObject") + " || " + celForbidsLabels("oldObject", "object") + "))")),
		on("", all, remove).If(unless(mine)),
	}
}

func claimRules(recovery bool) []admit.Rule {
	return []admit.Rule{
		on("", []string{"persistentvolumeclaims/status"}, update).If(unless(celKeepsClaim(recovery))),
		on("", []string{"persistentvolumeclaims/*"}, create, update, remove).
			If(isNode + " && !(request.operation == 'UPDATE' && " + sub + " == 'status')"),
	}
}

// tokenRules: it takes a look at the pod.
func tokenRules() []admit.Rule {
	return []admit.Rule{on("", []string{"serviceaccounts/token"}, create).OrIgnore()}
}

// certificateRules have all versions in each: conditions would else ask in which
// one a request was sent, although the API server converts it.
func certificateRules() []admit.Rule {
	const group = certificatesv1.GroupName
	signer := text("object.spec.signerName")
	rules := []admit.Rule{
		on(group, []string{"certificatesigningrequests", "certificatesigningrequests/*"}, create).OrIgnore().
			If(unless(fmt.Sprintf("!(%s in ['%s', '%s'])", signer, certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName))),
		on(group, []string{"podcertificaterequests"}, create).OrIgnore(),
		on(group, []string{"podcertificaterequests/status"}, create),
		on(group, []string{"podcertificaterequests/*"}, update, remove),
	}
	for i := range rules {
		rules[i].Versions = []string{"v1", "v1beta1", "v1alpha1"}
	}
	return rules
}

func leaseRules() []admit.Rule {
	fine := fmt.Sprintf("has(request.namespace) && request.namespace == '%s' && (request.operation == 'CREATE' ? %s : %s) == %s",
		corev1.NamespaceNodeLease, text("object.metadata.name"), named, self)
	// They are named too, because a wildcard is not for leases.
	return []admit.Rule{on("coordination.k8s.io", []string{"leases", "leases/*"}, create, update, remove).If(unless(fine))}
}

func csiNodeRules(health bool) []admit.Rule {
	fine := "(request.operation == 'CREATE' ? " + text("object.metadata.name") + " : " + named + ") == " + self + " && "
	if health {
		fine += "(" + sub + " != 'status' || request.operation == 'UPDATE' && " + unchanged("spec", "{}") + ")"
	} else {
		fine += sub + " != 'status'"
	}
	return []admit.Rule{on("storage.k8s.io", []string{"csinodes/*"}, create, update, remove).If(unless(fine))}
}

func sliceRules() []admit.Rule {
	rules := []admit.Rule{
		on("resource.k8s.io", []string{"resourceslices/*"}, create).If(unless(text("object.spec.nodeName") + " == " + self)),
		on("resource.k8s.io", []string{"resourceslices/*"}, remove).If(unless(text("oldObject.spec.nodeName") + " == " + self)),
	}
	for i := range rules {
		rules[i].Versions = []string{"v1", "v1beta2", "v1beta1", "v1alpha3"}
	}
	return rules
}
