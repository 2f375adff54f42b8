package admissions

// upstreamPlugin is a current or former admission plugin of kube-apiserver.
type upstreamPlugin struct {
	name string
	// defaultOn means that kube-apiserver enables the plugin by default.
	defaultOn bool
	// through means that the API server calls Postern through this plugin, so Postern cannot contain it.
	through bool
	// excuse is the reason why Postern will never implement the plugin.
	excuse string
}

// upstream lists the plugins in the recommended order of kube-apiserver v1.37.1
// (pkg/kubeapiserver/options/plugins.go). Removed plugins keep their last position.
func upstream() []upstreamPlugin {
	return []upstreamPlugin{
		{name: "AlwaysAdmit"},
		{name: "NamespaceAutoProvision"},
		{name: "NamespaceLifecycle", defaultOn: true},
		{name: "NamespaceExists"},
		{name: "SecurityContextDeny"},
		{name: "LimitPodHardAntiAffinityTopology"},
		{name: "InitialResources"},
		{name: "PodPreset"},
		{name: "LimitRanger", defaultOn: true},
		{name: "ServiceAccount", defaultOn: true},
		{name: "NodeRestriction"},
		{name: "TaintNodesByCondition", defaultOn: true},
		{name: "AlwaysPullImages"},
		{name: "ImagePolicyWebhook"},
		{name: "PodSecurity", defaultOn: true},
		{name: "PodSecurityPolicy"},
		{name: "PodNodeSelector"},
		{name: "Priority", defaultOn: true},
		{name: "DefaultTolerationSeconds", defaultOn: true},
		{name: "PodTolerationRestriction"},
		{name: "DenyEscalatingExec"},
		{name: "DenyExecOnPrivileged"},
		{name: "EventRateLimit"},
		{name: "ExtendedResourceToleration"},
		{name: "PersistentVolumeLabel"},
		{name: "DefaultStorageClass", defaultOn: true},
		{name: "StorageObjectInUseProtection", defaultOn: true},
		{name: "PodGroupProtection", defaultOn: true},
		{name: "OwnerReferencesPermissionEnforcement"},
		{name: "PersistentVolumeClaimResize", defaultOn: true},
		{name: "RuntimeClass", defaultOn: true},
		{name: "CertificateApproval", defaultOn: true},
		{name: "CertificateSigning", defaultOn: true},
		{name: "ClusterTrustBundleAttest", defaultOn: true},
		{name: "CertificateSubjectRestriction", defaultOn: true},
		{name: "DefaultIngressClass", defaultOn: true},
		{name: "DenyServiceExternalIPs"},
		{name: "PodTopologyLabels", defaultOn: true},
		{name: "PodGroupWorkloadExists", excuse: "it was alpha in 1.36 only"},
		{name: "JobValidation", excuse: "it was alpha in 1.36 only"},
		{name: "NodeDeclaredFeatureValidator", defaultOn: true},
		{name: "PodResizeValidator", defaultOn: true},
		{name: "MutatingAdmissionPolicy", defaultOn: true, through: true},
		{name: "Initializers", excuse: "the API that it served left Kubernetes in 1.14"},
		{name: "MutatingAdmissionWebhook", defaultOn: true, through: true},
		{name: "ValidatingAdmissionPolicy", defaultOn: true, through: true},
		{name: "ValidatingAdmissionWebhook", defaultOn: true, through: true},
		{name: "ResourceQuota", defaultOn: true},
		{name: "AlwaysDeny"},
	}
}

func upstreamByName() map[string]upstreamPlugin {
	out := map[string]upstreamPlugin{}
	for _, p := range upstream() {
		out[p.name] = p
	}
	return out
}

// OnByDefault reports whether a plugin is on by default in kube-apiserver.
func OnByDefault(plugin string) bool { return upstreamByName()[plugin].defaultOn }
