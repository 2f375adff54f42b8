package admit

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ContainerKind is the list of a pod's spec that a container is in.
type ContainerKind string

const (
	// InitContainers run before the others; some of them stay (sidecars).
	InitContainers ContainerKind = "initContainers"
	// Containers are the pod's own.
	Containers ContainerKind = "containers"
	// EphemeralContainers are added to a pod that runs.
	EphemeralContainers ContainerKind = "ephemeralContainers"
)

// Container is one container of a pod. Changes to it change the pod.
type Container struct {
	*corev1.Container
	Kind  ContainerKind
	Index int
}

// Path is where the container is in a pod, such as spec.containers[0].
func (c Container) Path() *field.Path {
	return field.NewPath("spec", string(c.Kind)).Index(c.Index)
}

// EachContainer visits the containers of the given kinds, of all three if none is
// given: init containers first, ephemeral ones last, as kube-apiserver does.
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
