package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodSecurityPolicy governs the security-sensitive fields of pods. A pod is admitted if it satisfies one policy
// that its creator or its service account may use. The object has the fields of policy/v1beta1 as of Kubernetes 1.24.
type PodSecurityPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec PodSecurityPolicySpec `json:"spec"`
}

// PodSecurityPolicyList is a list of policies.
type PodSecurityPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []PodSecurityPolicy `json:"items"`
}

// PodSecurityPolicySpec is what a policy demands of a pod, and what it sets in a pod.
type PodSecurityPolicySpec struct {
	// Privileged allows privileged containers.
	Privileged bool `json:"privileged,omitempty"`
	// DefaultAddCapabilities are added to a container, unless the container drops them.
	DefaultAddCapabilities []corev1.Capability `json:"defaultAddCapabilities,omitempty"`
	// RequiredDropCapabilities are dropped from every container.
	RequiredDropCapabilities []corev1.Capability `json:"requiredDropCapabilities,omitempty"`
	// AllowedCapabilities may be added by a container. "*" allows all capabilities.
	AllowedCapabilities []corev1.Capability `json:"allowedCapabilities,omitempty"`
	// Volumes are the allowed types of volumes. "*" allows all types.
	Volumes []FSType `json:"volumes,omitempty"`
	// HostNetwork allows pods in the network namespace of the host.
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// HostPorts are the host ports that containers may use.
	HostPorts []HostPortRange `json:"hostPorts,omitempty"`
	// HostPID allows pods in the PID namespace of the host.
	HostPID bool `json:"hostPID,omitempty"`
	// HostIPC allows pods in the IPC namespace of the host.
	HostIPC bool `json:"hostIPC,omitempty"`
	// SELinux restricts and sets the SELinux labels.
	SELinux SELinuxStrategyOptions `json:"seLinux"`
	// RunAsUser restricts and sets the user of containers.
	RunAsUser RunAsUserStrategyOptions `json:"runAsUser"`
	// RunAsGroup restricts and sets the primary group of containers. Without it any group is allowed.
	RunAsGroup *RunAsGroupStrategyOptions `json:"runAsGroup,omitempty"`
	// SupplementalGroups restricts and sets the supplemental groups of a pod.
	SupplementalGroups SupplementalGroupsStrategyOptions `json:"supplementalGroups"`
	// FSGroup restricts and sets the group that owns the volumes of a pod.
	FSGroup FSGroupStrategyOptions `json:"fsGroup"`
	// ReadOnlyRootFilesystem requires containers to have a read-only root filesystem.
	ReadOnlyRootFilesystem bool `json:"readOnlyRootFilesystem,omitempty"`
	// DefaultAllowPrivilegeEscalation is set in containers that say nothing about privilege escalation.
	DefaultAllowPrivilegeEscalation *bool `json:"defaultAllowPrivilegeEscalation,omitempty"`
	// AllowPrivilegeEscalation allows privilege escalation. The default is true.
	AllowPrivilegeEscalation *bool `json:"allowPrivilegeEscalation,omitempty"`
	// AllowedHostPaths are the allowed host paths. An empty list allows all paths.
	AllowedHostPaths []AllowedHostPath `json:"allowedHostPaths,omitempty"`
	// AllowedFlexVolumes are the allowed drivers of FlexVolumes. An empty list allows all drivers.
	AllowedFlexVolumes []AllowedFlexVolume `json:"allowedFlexVolumes,omitempty"`
	// AllowedCSIDrivers are the allowed drivers of inline CSI volumes. An empty list allows all drivers.
	AllowedCSIDrivers []AllowedCSIDriver `json:"allowedCSIDrivers,omitempty"`
	// AllowedUnsafeSysctls are the names, or prefixes that end in "*", of allowed unsafe sysctls.
	AllowedUnsafeSysctls []string `json:"allowedUnsafeSysctls,omitempty"`
	// ForbiddenSysctls are the names, or prefixes that end in "*", of forbidden sysctls.
	ForbiddenSysctls []string `json:"forbiddenSysctls,omitempty"`
	// AllowedProcMountTypes are the allowed mounts of /proc. An empty list allows only the default mount.
	AllowedProcMountTypes []corev1.ProcMountType `json:"allowedProcMountTypes,omitempty"`
	// RuntimeClass restricts and sets the runtime class of a pod. Without it any runtime class is allowed.
	RuntimeClass *RuntimeClassStrategyOptions `json:"runtimeClass,omitempty"`
}

// AllowedHostPath is an allowed prefix of host paths.
type AllowedHostPath struct {
	// PathPrefix ends at the boundary of a path segment: /foo allows /foo/bar and does not allow /food.
	PathPrefix string `json:"pathPrefix"`
	// ReadOnly requires all mounts of the volume to be read-only.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// AllowAll stands for all capabilities, and for all runtime classes.
const AllowAll = "*"

// FSType is a type of volume: the name of the field in the volume of a pod.
type FSType string

// The types of volumes in Kubernetes 1.24.
const (
	AzureFile             FSType = "azureFile"
	Flocker               FSType = "flocker"
	FlexVolume            FSType = "flexVolume"
	HostPath              FSType = "hostPath"
	EmptyDir              FSType = "emptyDir"
	GCEPersistentDisk     FSType = "gcePersistentDisk"
	AWSElasticBlockStore  FSType = "awsElasticBlockStore"
	GitRepo               FSType = "gitRepo"
	Secret                FSType = "secret"
	NFS                   FSType = "nfs"
	ISCSI                 FSType = "iscsi"
	Glusterfs             FSType = "glusterfs"
	PersistentVolumeClaim FSType = "persistentVolumeClaim"
	RBD                   FSType = "rbd"
	Cinder                FSType = "cinder"
	CephFS                FSType = "cephFS"
	DownwardAPI           FSType = "downwardAPI"
	FC                    FSType = "fc"
	ConfigMap             FSType = "configMap"
	VsphereVolume         FSType = "vsphereVolume"
	Quobyte               FSType = "quobyte"
	AzureDisk             FSType = "azureDisk"
	PhotonPersistentDisk  FSType = "photonPersistentDisk"
	StorageOS             FSType = "storageos"
	Projected             FSType = "projected"
	PortworxVolume        FSType = "portworxVolume"
	ScaleIO               FSType = "scaleIO"
	CSI                   FSType = "csi"
	Ephemeral             FSType = "ephemeral"
	// All stands for all types of volumes.
	All FSType = "*"
)

// AllowedFlexVolume is an allowed driver of FlexVolumes.
type AllowedFlexVolume struct {
	Driver string `json:"driver"`
}

// AllowedCSIDriver is an allowed driver of inline CSI volumes.
type AllowedCSIDriver struct {
	Name string `json:"name"`
}

// HostPortRange is a range of host ports. Both ends belong to it.
type HostPortRange struct {
	Min int32 `json:"min"`
	Max int32 `json:"max"`
}

// IDRange is a range of user or group IDs. Both ends belong to it.
type IDRange struct {
	Min int64 `json:"min"`
	Max int64 `json:"max"`
}

// Strategy is the rule of one group of fields.
type Strategy string

const (
	// MustRunAs requires a value of the ranges, or the given value, and sets it where there is none.
	MustRunAs Strategy = "MustRunAs"
	// MustRunAsNonRoot requires any user but root. Only RunAsUser has this rule.
	MustRunAsNonRoot Strategy = "MustRunAsNonRoot"
	// MayRunAs requires a value of the ranges where there is one. Only groups have this rule.
	MayRunAs Strategy = "MayRunAs"
	// RunAsAny allows any value, and sets none.
	RunAsAny Strategy = "RunAsAny"
)

// SELinuxStrategyOptions is the strategy for SELinux labels.
type SELinuxStrategyOptions struct {
	// Rule is MustRunAs or RunAsAny.
	Rule Strategy `json:"rule"`
	// SELinuxOptions are the labels of MustRunAs.
	SELinuxOptions *corev1.SELinuxOptions `json:"seLinuxOptions,omitempty"`
}

// RunAsUserStrategyOptions is the strategy for users.
type RunAsUserStrategyOptions struct {
	// Rule is MustRunAs, MustRunAsNonRoot or RunAsAny.
	Rule Strategy `json:"rule"`
	// Ranges are the allowed IDs of MustRunAs.
	Ranges []IDRange `json:"ranges,omitempty"`
}

// RunAsGroupStrategyOptions is the strategy for primary groups.
type RunAsGroupStrategyOptions struct {
	// Rule is MustRunAs, MayRunAs or RunAsAny.
	Rule Strategy `json:"rule"`
	// Ranges are the allowed IDs of MustRunAs and MayRunAs.
	Ranges []IDRange `json:"ranges,omitempty"`
}

// FSGroupStrategyOptions is the strategy for the group that owns volumes.
type FSGroupStrategyOptions struct {
	// Rule is MustRunAs, MayRunAs or RunAsAny.
	Rule Strategy `json:"rule,omitempty"`
	// Ranges are the allowed IDs of MustRunAs and MayRunAs.
	Ranges []IDRange `json:"ranges,omitempty"`
}

// SupplementalGroupsStrategyOptions is the strategy for supplemental groups.
type SupplementalGroupsStrategyOptions struct {
	// Rule is MustRunAs, MayRunAs or RunAsAny.
	Rule Strategy `json:"rule,omitempty"`
	// Ranges are the allowed IDs of MustRunAs and MayRunAs.
	Ranges []IDRange `json:"ranges,omitempty"`
}

// RuntimeClassStrategyOptions is the strategy for runtime classes.
type RuntimeClassStrategyOptions struct {
	// AllowedRuntimeClassNames are the allowed names. "*" allows all names. An empty list allows none.
	AllowedRuntimeClassNames []string `json:"allowedRuntimeClassNames,omitempty"`
	// DefaultRuntimeClassName is set in pods without a runtime class.
	DefaultRuntimeClassName *string `json:"defaultRuntimeClassName,omitempty"`
}
