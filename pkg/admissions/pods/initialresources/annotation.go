package initialresources

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/postern-dev/postern/internal/kinds/podspec"
)

const (
	// annotation lists the requests that the plugin set.
	annotation = "kubernetes.io/initial-resources"
	prefix     = "Initial Resources plugin set: "
)

var part = regexp.MustCompile(`^(cpu|memory|cpu, memory) request for (init container|container) ([a-z0-9-]+)$`)

// requests lists the resources whose request the plugin set, by container. The key consists of the kind and the name of
// the container, as in the annotation.
type requests map[string]sets.Set[string]

// annotate adds the requests that the plugin is about to set to the annotation. It keeps the earlier ones, because the
// API server calls the plugin again after a later webhook added a container. It returns false, and changes nothing, if
// the API server would reject the annotations for their size.
func annotate(pod *corev1.Pod, set []want) bool {
	described := requests{}
	described.read(pod)
	for _, w := range set {
		described.add(describe(w.Container), string(w.resource))
	}
	annotations := maps.Clone(pod.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotation] = described.text(pod)
	if validation.ValidateAnnotationsSize(annotations) != nil {
		return false
	}
	pod.Annotations = annotations
	return true
}

func describe(c podspec.Container) string {
	if c.Kind == podspec.InitContainers {
		return "init container " + c.Name
	}
	return "container " + c.Name
}

func (r requests) add(container string, resources ...string) {
	if r[container] == nil {
		r[container] = sets.New[string]()
	}
	r[container].Insert(resources...)
}

// read reads the annotation of a pod. It ignores entries for requests that the containers do not have, because the pod
// may be a copy of another pod.
func (r requests) read(pod *corev1.Pod) {
	text, ok := strings.CutPrefix(pod.Annotations[annotation], prefix)
	if !ok {
		return
	}
	said := requests{}
	for p := range strings.SplitSeq(text, "; ") {
		if m := part.FindStringSubmatch(p); m != nil {
			said.add(m[2]+" "+m[3], strings.Split(m[1], ", ")...)
		}
	}
	for c := range podspec.EachContainer(&pod.Spec, podspec.InitContainers, podspec.Containers) {
		container := describe(c)
		for name := range said[container] {
			if _, ok := c.Resources.Requests[corev1.ResourceName(name)]; ok {
				r.add(container, name)
			}
		}
	}
}

// text returns the annotation, in the order of the containers.
func (r requests) text(pod *corev1.Pod) string {
	var parts []string
	for c := range podspec.EachContainer(&pod.Spec, podspec.InitContainers, podspec.Containers) {
		if resources := r[describe(c)]; len(resources) > 0 {
			parts = append(parts, strings.Join(slices.Sorted(maps.Keys(resources)), ", ")+" request for "+describe(c))
		}
	}
	return prefix + strings.Join(parts, "; ")
}
