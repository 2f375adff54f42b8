package admissions

// upstreamPlugin is an admission plugin that kube-apiserver has, or once had.
type upstreamPlugin struct {
	name string
	// defaultOn says that kube-apiserver runs it unless told otherwise.
	defaultOn bool
	// through says that Postern is called through it, so it cannot be in Postern.
	through bool
	// excuse is why it is not in Postern, for one that never will be.
	excuse string
}

// upstream lists them in the recommended order of kube-apiserver v1.37.1
// (pkg/kubeapiserver/options/plugins.go), the removed ones where they last stood.
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
