// Package resources knows the resources of kinds without an API server: those of k8s.io/api, and those that
// CustomResourceDefinitions define.
package resources

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Subresources returns the kinds that are used only with a subresource.
func Subresources() map[schema.GroupKind]string {
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

// clusterScoped is shared, because it is only read.
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

// IsNamespaced reports whether a kind of k8s.io/api is namespaced. It returns false for all other kinds,
// such as the options of a CONNECT.
func IsNamespaced(kind schema.GroupKind) bool {
	if _, sub := Subresources()[kind]; sub || clusterScoped()[kind] {
		return false
	}
	return scheme.Scheme.IsGroupRegistered(kind.Group) || kind.Group == ""
}

// mapper is shared, because it is only read.
var mapper = sync.OnceValue(newMapper)

// served are the kinds besides those of k8s.io/api that each API server has. They are cluster-scoped.
var served = []schema.GroupVersionKind{
	{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, {Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"},
}

// isServed reports whether each API server has a kind.
func isServed(kind schema.GroupVersionKind) bool {
	return scheme.Scheme.Recognizes(kind) || slices.Contains(served, kind)
}

// newMapper returns a mapper for the kinds that each API server has.
func newMapper() meta.RESTMapper {
	cluster := clusterScoped()
	m := meta.NewDefaultRESTMapper(scheme.Scheme.PrioritizedVersionsAllGroups())
	for gvk := range scheme.Scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		if cluster[gvk.GroupKind()] {
			scope = meta.RESTScopeRoot
		}
		m.Add(gvk, scope)
	}
	for _, gvk := range served {
		m.Add(gvk, meta.RESTScopeRoot)
	}
	return m
}
