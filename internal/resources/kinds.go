// Package resources knows the resources of kinds without an API server: those of k8s.io/api, and those that
// CustomResourceDefinitions define.
package resources

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
	settingsv1alpha1 "github.com/postern-dev/postern/pkg/apis/settings/v1alpha1"
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

// served are the kinds besides those of k8s.io/api that an API server has, with those of Postern. The value says whether they are
// namespaced.
var served = map[schema.GroupVersionKind]bool{
	{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}: false,
	{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}:             false,
	policyv1.GroupVersion().WithKind("PodSecurityPolicy"):                            false,
	settingsv1alpha1.GroupVersionResource().GroupVersion().WithKind("PodPreset"):     true,
	quotav1alpha1.Allowances().GroupVersion().WithKind(quotav1alpha1.QuotaKind):      false,
	quotav1alpha1.Allowances().GroupVersion().WithKind(quotav1alpha1.AllowanceKind):  false,
}

// isServed reports whether an API server has a kind without a CustomResourceDefinition, as far as a manifest tells.
func isServed(kind schema.GroupVersionKind) bool {
	_, ok := served[kind]
	return ok || scheme.Scheme.Recognizes(kind)
}

// newMapper returns a mapper for these kinds and those of k8s.io/api.
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
	for gvk, namespaced := range served {
		scope := meta.RESTScopeRoot
		if namespaced {
			scope = meta.RESTScopeNamespace
		}
		m.Add(gvk, scope)
	}
	return m
}
