package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodPreset is additional content for the new pods of its namespace that its selector selects. The object has the
// fields of settings.k8s.io/v1alpha1 as of Kubernetes 1.19.
type PodPreset struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec PodPresetSpec `json:"spec,omitzero"`
}

// PodPresetList is a list of presets.
type PodPresetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []PodPreset `json:"items"`
}

// PodPresetSpec is what a preset adds, and to which pods.
type PodPresetSpec struct {
	// Selector selects pods by their labels. An empty selector selects all pods of the namespace.
	Selector metav1.LabelSelector `json:"selector,omitzero"`
	// Env are added to all containers and init containers.
	Env []corev1.EnvVar `json:"env,omitempty"`
	// EnvFrom are sources of environment variables, added to all containers and init containers.
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`
	// Volumes are added to the pod.
	Volumes []corev1.Volume `json:"volumes,omitempty"`
	// VolumeMounts are added to all containers and init containers.
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
}
