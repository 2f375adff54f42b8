package admittest

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// subresources returns the kinds that are used only with a subresource.
func subresources() map[schema.GroupKind]string {
	return map[schema.GroupKind]string{
		{Kind: "Binding"}:                                      "pods/binding",
		{Kind: "PodExecOptions"}:                               "pods/exec",
		{Kind: "PodAttachOptions"}:                             "pods/attach",
		{Kind: "PodPortForwardOptions"}:                        "pods/portforward",
		{Kind: "PodProxyOptions"}:                              "pods/proxy",
		{Kind: "NodeProxyOptions"}:                             "nodes/proxy",
		{Kind: "ServiceProxyOptions"}:                          "services/proxy",
		{Group: "policy", Kind: "Eviction"}:                    "pods/eviction",
		{Group: "authentication.k8s.io", Kind: "TokenRequest"}: "serviceaccounts/token",
	}
}

// clusterScoped is shared by all cases, because they only read it.
var clusterScoped = sync.OnceValue(clusterScopedKinds)

// clusterScopedKinds returns the cluster-scoped kinds of k8s.io/api, and those that Kubernetes serves besides.
func clusterScopedKinds() map[schema.GroupKind]bool {
	out := map[schema.GroupKind]bool{}
	for group, kinds := range map[string][]string{
		"":                             {"Namespace", "Node", "PersistentVolume", "ComponentStatus"},
		"admissionregistration.k8s.io": {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
		"apiextensions.k8s.io":         {"CustomResourceDefinition"},
		"apiregistration.k8s.io":       {"APIService"},
		"authentication.k8s.io":        {"TokenReview", "SelfSubjectReview"},
		"authorization.k8s.io":         {"SubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview"},
		"certificates.k8s.io":          {"CertificateSigningRequest", "ClusterTrustBundle"},
		"flowcontrol.apiserver.k8s.io": {"FlowSchema", "PriorityLevelConfiguration"},
		"internal.apiserver.k8s.io":    {"StorageVersion"},
		"networking.k8s.io":            {"IngressClass", "IPAddress", "ServiceCIDR"},
		"node.k8s.io":                  {"RuntimeClass"},
		"policy":                       {"PodSecurityPolicy"},
		"rbac.authorization.k8s.io":    {"ClusterRole", "ClusterRoleBinding"},
		"resource.k8s.io":              {"DeviceClass", "DeviceTaintRule", "ResourceSlice"},
		"scheduling.k8s.io":            {"PriorityClass"},
		"storage.k8s.io":               {"CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"},
		"storagemigration.k8s.io":      {"StorageVersionMigration"},
	} {
		for _, kind := range kinds {
			out[schema.GroupKind{Group: group, Kind: kind}] = true
		}
	}
	return out
}

// namespaced reports whether a kind of k8s.io/api is namespaced. It returns false for all other kinds,
// such as the options of a CONNECT.
func namespaced(kind schema.GroupKind) bool {
	if _, sub := subresources()[kind]; sub || clusterScoped()[kind] {
		return false
	}
	return scheme.Scheme.IsGroupRegistered(kind.Group) || kind.Group == ""
}

// restMapper is shared by all cases, because they only read it.
var restMapper = sync.OnceValue(newRESTMapper)

// newRESTMapper returns a mapper for all kinds of k8s.io/api.
func newRESTMapper() meta.RESTMapper {
	cluster := clusterScoped()
	m := meta.NewDefaultRESTMapper(scheme.Scheme.PrioritizedVersionsAllGroups())
	for gvk := range scheme.Scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		if cluster[gvk.GroupKind()] {
			scope = meta.RESTScopeRoot
		}
		m.Add(gvk, scope)
	}
	return m
}
