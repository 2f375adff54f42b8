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

// clusterScopedKinds returns the cluster-scoped kinds of k8s.io/api and of Postern's custom
// resources.
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
		"policy.postern.dev":           {"PodSecurityPolicy"},
		"quota.postern.dev":            {"FleetAllowance", "FleetQuota"},
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

// namespaced reports whether a known kind is namespaced. It returns false for all other kinds,
// such as the options of a CONNECT.
func namespaced(kind schema.GroupKind) bool {
	if _, sub := subresources()[kind]; sub || clusterScoped()[kind] {
		return false
	}
	return scheme.Scheme.IsGroupRegistered(kind.Group) || kind.Group == ""
}

// customKinds returns Postern's custom resources, and those that plugins read if they exist. They are not part of
// k8s.io/api.
func customKinds() map[schema.GroupVersionResource]string {
	return map[schema.GroupVersionResource]string{
		{Group: "kubeflow.org", Version: "v1", Resource: "pytorchjobs"}:                  "PyTorchJobList",
		{Group: "kubeflow.org", Version: "v2beta1", Resource: "mpijobs"}:                 "MPIJobList",
		{Group: "ray.io", Version: "v1", Resource: "rayclusters"}:                        "RayClusterList",
		{Group: "policy.postern.dev", Version: "v1", Resource: "podsecuritypolicies"}:    "PodSecurityPolicyList",
		{Group: "quota.postern.dev", Version: "v1alpha1", Resource: "fleetallowances"}:   "FleetAllowanceList",
		{Group: "settings.postern.dev", Version: "v1alpha1", Resource: "podpresets"}:     "PodPresetList",
		{Group: "settings.k8s.io", Version: "v1alpha1", Resource: "podpresets"}:          "PodPresetList",
		{Group: "autoscaling.k8s.io", Version: "v1", Resource: "verticalpodautoscalers"}: "VerticalPodAutoscalerList",
	}
}

// workloads returns the kinds of k8s.io/api that plugins read with a dynamic client.
func workloads() map[schema.GroupVersionResource]string {
	return map[schema.GroupVersionResource]string{
		{Version: "v1", Resource: "pods"}:                        "PodList",
		{Group: "apps", Version: "v1", Resource: "deployments"}:  "DeploymentList",
		{Group: "apps", Version: "v1", Resource: "statefulsets"}: "StatefulSetList",
		{Group: "apps", Version: "v1", Resource: "replicasets"}:  "ReplicaSetList",
		{Group: "apps", Version: "v1", Resource: "daemonsets"}:   "DaemonSetList",
		{Group: "batch", Version: "v1", Resource: "jobs"}:        "JobList",
		{Group: "batch", Version: "v1", Resource: "cronjobs"}:    "CronJobList",
	}
}

// isWorkload reports whether a kind is one of workloads.
func isWorkload(gvk schema.GroupVersionKind) bool {
	for gvr, list := range workloads() {
		if gvr.GroupVersion() == gvk.GroupVersion() && list == gvk.Kind+"List" {
			return true
		}
	}
	return false
}

// restMapper is shared by all cases, because they only read it.
var restMapper = sync.OnceValue(newRESTMapper)

// newRESTMapper returns a mapper for all kinds of k8s.io/api and Postern's custom kinds.
func newRESTMapper() meta.RESTMapper {
	cluster := clusterScoped()
	m := meta.NewDefaultRESTMapper(scheme.Scheme.PrioritizedVersionsAllGroups())
	add := func(gvk schema.GroupVersionKind) {
		scope := meta.RESTScopeNamespace
		if cluster[gvk.GroupKind()] {
			scope = meta.RESTScopeRoot
		}
		m.Add(gvk, scope)
	}
	for gvk := range scheme.Scheme.AllKnownTypes() {
		add(gvk)
	}
	for gvr, list := range customKinds() {
		add(gvr.GroupVersion().WithKind(list[:len(list)-len("List")]))
	}
	return m
}
