// Package v1 has the Go types of the API group policy.postern.dev/v1. Its only kind, PodSecurityPolicy, has the
// fields of policy/v1beta1 as of Kubernetes 1.24. installer/crds has the CustomResourceDefinition.
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group. The API group policy belongs to Kubernetes, and no CustomResourceDefinition may serve it.
const GroupName = "policy.postern.dev"

// Kind and Resource are the names of policies in the API.
const (
	Kind     = "PodSecurityPolicy"
	Resource = "podsecuritypolicies"
)

// GroupVersion returns the API group and version of this package.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: GroupName, Version: "v1"} }

// GroupVersionResource returns the resource of policies.
func GroupVersionResource() schema.GroupVersionResource { return GroupVersion().WithResource(Resource) }

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &PodSecurityPolicy{}, &PodSecurityPolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
