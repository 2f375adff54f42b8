package limitranger

import (
	"context"
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
	// containerBytes is the least that a container takes in etcd, entryBytes what a resource takes there besides its name.
	containerBytes = 26
	entryBytes     = 9
	// textBytes is the memory of the words about a container in the annotation.
	textBytes = 64
)

// hold holds the memory of the defaults that a pod gets. A user chooses the number of its containers, each of which gets two
// maps. It denies a pod that cannot be stored with the defaults.
func hold(ctx context.Context, pod *corev1.Pod, limitRanges []*corev1.LimitRange) error {
	var all corev1.ResourceRequirements
	for _, lr := range limitRanges {
		defaults := defaultsOf(lr)
		all.Limits, all.Requests = with(all.Limits, defaults.Limits), with(all.Requests, defaults.Requests)
	}
	var g growth
	for c := range podspec.EachContainer(&pod.Spec, podspec.Containers, podspec.InitContainers) {
		g.stored += containerBytes
		g.add(c.Name, c.Resources.Limits, all.Limits)
		g.add(c.Name, c.Resources.Requests, all.Requests)
	}
	if g.memory > 0 && g.stored > footprint.StoredBytes {
		return admit.Deny(apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"the pod takes more than the %d bytes that can be stored, with what the LimitRanges add to its containers", footprint.StoredBytes)))
	}
	return admit.Hold(ctx, g.memory)
}

// with returns a list with the resources of both lists, which may be list itself.
func with(list, more corev1.ResourceList) corev1.ResourceList {
	if list == nil {
		return more
	}
	maps.Copy(list, more)
	return list
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
