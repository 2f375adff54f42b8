package noderestriction

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/pkg/admit"
)

const (
	create = admissionv1.Create
	update = admissionv1.Update
	remove = admissionv1.Delete
)

const (
	// isNode is the CEL expression for a request of a node.
	isNode = "has(request.userInfo.username) && request.userInfo.username.startsWith('" + userPrefix + "') && " +
		"has(request.userInfo.groups) && '" + usersGroup + "' in request.userInfo.groups"
	// self is the name of that node: the user name without userPrefix, which is twelve characters long. It is
	// empty for a user that is denied.
	self = "request.userInfo.username.substring(12)"
	// named is the name of the object of an update or a deletion.
	named = "(has(request.name) ? request.name : '')"
	// sub is the subresource of the request.
	sub = "(has(request.subResource) ? request.subResource : '')"
)

// rules returns the rules for the requests of nodes. Most conditions contain the whole policy, so the API
// server calls Postern only for requests that are denied, and nodes keep working while Postern is down. For
// the other rules the API server has to call. Requests that a node needs to join the cluster and to run pods
// fail as the configuration says.
//
// kube-apiserver's plugin checks the object that the node sent, in the mutating phase. The validating phase
// sees the object that will be stored. Both phases check where the API server drops a change in between, such
// as a change of spec in a status update: the mutating phase denies that change, and the validating phase
// denies changes that other webhooks made.
func rules(features featuregate.FeatureGate, c config) []admit.Rule {
	recovery, health := features.Enabled(expansionRecovery), features.Enabled(csiVolumeHealth)
	return slices.Concat(
		in(admit.Both, changedNodeRules(), changedCSINodeRules(health)),
		in(admit.Validating, nodeRules(), signingRules(c), sliceRules(), csiNodeRules(health)),
		in(admit.Mutating, newNodeRules()),
		namespacedRules(recovery, c, c.openTokens()),
		ownRules(recovery),
	)
}

// namespacedRules are the rules for namespaced resources. Tokens for which the CEL expression open is true fail open.
func namespacedRules(recovery bool, c config, open string) []admit.Rule {
	return slices.Concat(
		in(admit.Both, statusRules(), claimStatusRules(recovery)),
		in(admit.Validating, podRules(c), podCertificateRules(c), leaseRules(), claimRules()),
		in(admit.Mutating, tokenRules(c, open)),
	)
}

// ownRules are the rules for Postern's own namespace, whatever the configuration says. A node that could create pods there
// would get the CA of the webhooks and the service account of Postern, or could pose as its pods. To start Postern a node
// needs only tokens that are bound to pods, and requests that the conditions let pass.
func ownRules(recovery bool) []admit.Rule {
	rules := namespacedRules(recovery, config{FailurePolicy: admissionregistrationv1.Fail}, bound())
	for i := range rules {
		rules[i] = rules[i].InOwnNamespace()
	}
	return rules
}

func in(phase admit.Phase, lists ...[]admit.Rule) []admit.Rule {
	var out []admit.Rule
	for _, r := range slices.Concat(lists...) {
		out = append(out, r.In(phase))
	}
	return out
}

// unless returns the CEL expression that is true for requests of nodes except those that the expression fine admits. A
// user without a node name is never admitted.
func unless(fine string) string {
	return fmt.Sprintf("%s && (%s == '' || !(%s))", isNode, self, fine)
}

// text is the CEL expression for the string at a path, which is empty if the path is absent.
func text(path string) string { return admit.CELValue(path, "''") }

// maxCompared is the largest number of entries of a map or list that a condition compares. Larger ones count as
// changed, so the API server calls Postern.
const maxCompared = 1000

// unchanged is the CEL expression for a path that has the same value in both objects. An absent path equals
// the given default.
func unchanged(path, otherwise string) string {
	object, old := admit.CELValue("object."+path, otherwise), admit.CELValue("oldObject."+path, otherwise)
	same := object + " == " + old
	if otherwise == "null" || path == "spec" {
		return same
	}
	// The API server takes a third of a second to compare two maps of 100,000 labels.
	return fmt.Sprintf("(size(%s) <= %d && %s)", object, maxCompared, same)
}

// on returns a rule for the requests of all nodes.
func on(group string, resources []string, operations ...admissionv1.Operation) admit.Rule {
	return admit.Rule{Group: group, Resources: resources, Operations: operations, Condition: isNode}
}

// ofNode is the CEL expression for a pod that is bound to the node.
func ofNode() string { return text("oldObject.spec.nodeName") + " == " + self }

func statusRules() []admit.Rule {
	same := unchanged("metadata.labels", "{}") + " && " + unchanged("status.resourceClaimStatuses", "[]") + " && " +
		unchanged("status.extendedResourceClaimStatus", "null") + " && " + unchanged("status.nodeAllocatableResourceClaimStatuses", "[]")
	return []admit.Rule{on("", []string{"pods/status"}, update).If(unless(ofNode() + " && " + same))}
}

func podRules(c config) []admit.Rule {
	return []admit.Rule{
		// Mirror pods: the UID in their owner reference is the UID of the Node.
		c.failing(on("", []string{"pods"}, create)),
		// An eviction needs a lookup of the pod. A node may create no other subresource.
		on("", []string{
			"pods/attach", "pods/binding", "pods/ephemeralcontainers", "pods/eviction", "pods/exec", "pods/log",
			"pods/portforward", "pods/proxy", "pods/resize", "pods/status",
		}, create),
		on("", []string{"pods"}, remove).If(unless(named + " != '' && " + ofNode())),
		on("", []string{"pods/*"}, update, remove).If(isNode + " && !(request.operation == 'DELETE' && " + sub + " == '') && " +
			"!(request.operation == 'UPDATE' && " + sub + " == 'status')"),
	}
}

const (
	// itself is the CEL expression for the Node object of the requesting node.
	itself = named + " == " + self
	// configSource is the path of a field that no current kubelet uses. The API server drops a newly set
	// value.
	configSource = "spec.configSource"
)

// allNodes are the resources of Nodes. The rules name them, because a wildcard excludes the creation of
// nodes.
func allNodes() []string { return []string{"nodes", "nodes/*"} }

func newNode() string {
	return unless(itself + " && " + admit.CELValue("object."+configSource, "null") + " == null && !" + celForbidsLabels("object", ""))
}

// newNodeRules fail open whatever the configuration says, as do the rules of TaintNodesByCondition in the same
// webhook, so that a node can join while Postern is down. The rule for the validating phase fails closed; its
// condition tells the API server which node may join.
func newNodeRules() []admit.Rule {
	return []admit.Rule{on("", allNodes(), create).OrIgnore().If(newNode())}
}

func nodeRules() []admit.Rule {
	return []admit.Rule{
		on("", allNodes(), create).If(newNode()),
		on("", allNodes(), remove).If(unless(itself)),
	}
}

func changedNodeRules() []admit.Rule {
	sameConfig := "(" + admit.CELValue("object."+configSource, "null") + " == null || " + unchanged(configSource, "null") + ")"
	sameLabels := "(" + unchanged("metadata.labels", "{}") + " || !(" + celForbidsLabels("object", "oldObject") + " || " + celForbidsLabels("oldObject", "object") + "))"
	return []admit.Rule{on("", allNodes(), update).If(unless(strings.Join([]string{
		itself, sameConfig, unchanged("spec.taints", "[]"), unchanged("metadata.ownerReferences", "[]"), sameLabels,
	}, " && ")))}
}

func claimStatusRules(recovery bool) []admit.Rule {
	return []admit.Rule{on("", []string{"persistentvolumeclaims/status"}, update).If(unless(celKeepsClaim(recovery)))}
}

func claimRules() []admit.Rule {
	return []admit.Rule{
		on("", []string{"persistentvolumeclaims/*"}, create, update, remove).
			If(isNode + " && !(request.operation == 'UPDATE' && " + sub + " == 'status')"),
	}
}

// tokenRules apply in the mutating phase: before the validating phase, serviceaccounts/token replaces an
// empty list of audiences with the audiences of the API server, which are then indistinguishable from
// requested audiences. The API server calls for every token, because the pod has to be looked up.
func tokenRules(c config, open string) []admit.Rule {
	all := on("", []string{"serviceaccounts/token"}, create)
	if open == "" {
		return []admit.Rule{c.failing(all)}
	}
	return []admit.Rule{c.failing(all.If(isNode + " && !(" + open + ")")), all.OrIgnore()}
}

func signingRules(c config) []admit.Rule {
	signer := text("object.spec.signerName")
	return inAllVersions(c.failing(on(certificatesv1.GroupName, []string{"certificatesigningrequests", "certificatesigningrequests/*"}, create).
		If(unless(fmt.Sprintf("!(%s in ['%s', '%s'])", signer, certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName)))))
}

func podCertificateRules(c config) []admit.Rule {
	const group = certificatesv1.GroupName
	return inAllVersions(
		c.failing(on(group, []string{"podcertificaterequests"}, create)),
		on(group, []string{"podcertificaterequests/status"}, create),
		on(group, []string{"podcertificaterequests/*"}, update, remove),
	)
}

// inAllVersions returns the rules with all versions of certificates.k8s.io. With one rule for each version the conditions
// would have to check the version of the request, although the API server converts the object.
func inAllVersions(rules ...admit.Rule) []admit.Rule {
	for i := range rules {
		rules[i].Versions = []string{"v1", "v1beta1", "v1alpha1"}
	}
	return rules
}

func leaseRules() []admit.Rule {
	fine := fmt.Sprintf("has(request.namespace) && request.namespace == '%s' && (request.operation == 'CREATE' ? %s : %s) == %s",
		corev1.NamespaceNodeLease, text("object.metadata.name"), named, self)
	// The rules name Leases, because a wildcard excludes them.
	return []admit.Rule{on("coordination.k8s.io", []string{"leases", "leases/*"}, create, update, remove).If(unless(fine))}
}

func changedCSINodeRules(health bool) []admit.Rule {
	return []admit.Rule{on("storage.k8s.io", []string{"csinodes/*"}, update).If(unless(named + " == " + self + " && " + csiNodeStatus(health)))}
}

func csiNodeRules(health bool) []admit.Rule {
	fine := "(request.operation == 'CREATE' ? " + text("object.metadata.name") + " : " + named + ") == " + self + " && " + csiNodeStatus(health)
	return []admit.Rule{on("storage.k8s.io", []string{"csinodes/*"}, create, remove).If(unless(fine))}
}

// csiNodeStatus is the CEL expression for an allowed change of the status of a CSINode.
func csiNodeStatus(health bool) string {
	if !health {
		return sub + " != 'status'"
	}
	return "(" + sub + " != 'status' || request.operation == 'UPDATE' && " + unchanged("spec", "{}") + ")"
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
