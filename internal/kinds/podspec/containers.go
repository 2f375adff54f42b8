// Package podspec reads the parts of a Pod that several plugins need: its containers, the Secrets that it names, its
// resources, and its quality-of-service class.
package podspec

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/postern-dev/postern/pkg/admit"
)

// ContainerKind names the list of a PodSpec that a container is in.
type ContainerKind string

const (
	// InitContainers run before the other containers. Sidecars among them keep
	// running.
	InitContainers ContainerKind = "initContainers"
	// Containers are the ordinary containers of the pod.
	Containers ContainerKind = "containers"
	// EphemeralContainers are added to a running pod.
	EphemeralContainers ContainerKind = "ephemeralContainers"
)

// ContainerKinds returns all kinds, in the order in which kube-apiserver visits them.
func ContainerKinds() []ContainerKind {
	return []ContainerKind{InitContainers, Containers, EphemeralContainers}
}

// WithoutContainers is a CEL expression that is true for an object without containers. Such an object is not a pod, so
// conditions about containers are false for it, and the API server has to call the plugin.
func WithoutContainers() string {
	return "size(" + admit.CELList("object.spec."+string(Containers)) + ") == 0"
}

// Container is one container of a pod. Changing it changes the pod.
type Container struct {
	*corev1.Container
	Kind  ContainerKind
	Index int
}

// Path is the field path of the container in its pod, such as spec.containers[0].
func (c Container) Path() *field.Path {
	return field.NewPath("spec", string(c.Kind)).Index(c.Index)
}

// EachContainer visits the containers of the given kinds, or of all kinds if none is
// given. Init containers come first and ephemeral containers last, as in
// kube-apiserver.
func EachContainer(spec *corev1.PodSpec, kinds ...ContainerKind) iter.Seq[Container] {
	wanted := func(k ContainerKind) bool { return len(kinds) == 0 || slices.Contains(kinds, k) }
	return func(yield func(Container) bool) {
		if wanted(InitContainers) {
			for i := range spec.InitContainers {
				if !yield(Container{&spec.InitContainers[i], InitContainers, i}) {
					return
				}
			}
		}
		if wanted(Containers) {
			for i := range spec.Containers {
				if !yield(Container{&spec.Containers[i], Containers, i}) {
					return
				}
			}
		}
		if wanted(EphemeralContainers) {
			for i := range spec.EphemeralContainers {
				// The two types have the same fields.
				c := (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
				if !yield(Container{c, EphemeralContainers, i}) {
					return
				}
			}
		}
	}
}
