package limitranger

import (
	"fmt"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/postern-dev/postern/internal/footprint"
	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/pkg/admit"
)

const (
	// containerBytes is the least that a container takes in etcd, in protobuf. Ten of its fields are always written.
	containerBytes = 26
	// entryBytes is the least that a resource takes in etcd besides its name, in JSON. It takes 9 in protobuf.
	entryBytes = 7
	// textBytes is the memory of the words about a container in the annotation.
	textBytes = 64
)

// growthOf returns the memory in bytes of the defaults that a pod gets. A user chooses the number of its containers, each of
// which gets two maps. It denies a pod that cannot be stored with them.
func growthOf(pod *corev1.Pod, defaults []corev1.ResourceRequirements) (int64, error) {
	all := corev1.ResourceRequirements{Limits: corev1.ResourceList{}, Requests: corev1.ResourceList{}}
	for _, d := range defaults {
		maps.Copy(all.Limits, d.Limits)
		maps.Copy(all.Requests, d.Requests)
	}
	if len(all.Limits)+len(all.Requests) == 0 {
		return 0, nil
	}
	var g growth
	for c := range podspec.EachContainer(&pod.Spec, podspec.Containers, podspec.InitContainers) {
		g.stored += containerBytes
		g.add(c.Name, c.Resources.Limits, all.Limits)
		g.add(c.Name, c.Resources.Requests, all.Requests)
		if g.stored > footprint.StoredBytes {
			return 0, admit.Deny(apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
				"the containers take more than the %d bytes that can be stored, with the defaults of the LimitRanges", footprint.StoredBytes)))
		}
	}
	return g.memory, nil
}

// growth is what defaults add to a pod.
type growth struct {
	// memory is what they take in memory, in bytes.
	memory int64
	// stored is the least that the containers take in etcd with the defaults, in bytes.
	stored int64
}

// add adds the defaults that a list of a container lacks.
func (g *growth) add(container string, list, defaults corev1.ResourceList) {
	lacks, names := 0, 0
	for name := range defaults {
		if _, ok := list[name]; !ok {
			lacks++
			names += len(name)
		}
	}
	if lacks == 0 {
		return
	}
	g.stored += int64(names + lacks*entryBytes)
	g.memory += footprint.OfMap(reflect.TypeFor[corev1.ResourceList](), len(list)+lacks)
	// Parts of the annotation, the annotation, and the patch.
	g.memory += 3 * int64(textBytes+names+len(container))
}
