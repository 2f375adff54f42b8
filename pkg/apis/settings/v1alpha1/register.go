// Package v1alpha1 has the Go types of the API group settings.postern.dev/v1alpha1. Its only kind, PodPreset, has the
// fields of settings.k8s.io/v1alpha1 as of Kubernetes 1.19. installer/crds has the CustomResourceDefinition.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// GroupName is the API group.
	GroupName = "settings.postern.dev"
	// LegacyGroupName is the API group of kube-apiserver's PodPresets. A CustomResourceDefinition may serve it if it has
	// the annotation api-approved.kubernetes.io.
	LegacyGroupName = "settings.k8s.io"
)

// Kind and Resource are the names of presets in the API.
const (
	Kind     = "PodPreset"
	Resource = "podpresets"
)

// GroupVersion returns the API group and version of this package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
}

// GroupVersionResource returns the resource of presets.
func GroupVersionResource() schema.GroupVersionResource { return GroupVersion().WithResource(Resource) }

// LegacyGroupVersion returns the group and version in which kube-apiserver served presets.
func LegacyGroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: LegacyGroupName, Version: "v1alpha1"}
}

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &PodPreset{}, &PodPresetList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
