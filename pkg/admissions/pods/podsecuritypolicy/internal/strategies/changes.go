package strategies

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/internal/shorttext"
)

const (
	// maxChanges is the largest number of changes that a denial names for one policy.
	maxChanges = 10
	// maxKey is the most bytes of the key of an annotation in a denial, which is that of the longest valid key. It has the name
	// of a container, which is not checked yet.
	maxKey = 317
)

// Changes returns the paths of what Default changed in a pod, at most maxChanges. Default adds no containers.
func Changes(before, after *corev1.Pod) []string {
	out := changedAnnotations(before, after)
	if !apiequality.Semantic.DeepEqual(before.Spec.RuntimeClassName, after.Spec.RuntimeClassName) {
		out = append(out, "spec.runtimeClassName")
	}
	out = append(out, changedFields(field.NewPath("spec", "securityContext"), podContext(before), podContext(after))...)
	old := slices.Collect(podspec.EachContainer(&before.Spec))
	for i, c := range slices.Collect(podspec.EachContainer(&after.Spec)) {
		if len(out) >= maxChanges {
			break
		}
		out = append(out, changedFields(c.Path().Child("securityContext"), context(old[i]), context(c))...)
	}
	return out[:min(len(out), maxChanges)]
}

func changedAnnotations(before, after *corev1.Pod) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(after.Annotations)) {
		if old, ok := before.Annotations[key]; !ok || old != after.Annotations[key] {
			out = append(out, field.NewPath("metadata", "annotations").Key(shorttext.Of(key, maxKey)).String())
		}
	}
	return out
}

// changedFields returns the paths of the fields that differ in two structs of one type.
func changedFields[T any](path *field.Path, before, after *T) []string {
	var out []string
	b, a := reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem()
	for f, value := range a.Fields() {
		if !apiequality.Semantic.DeepEqual(b.FieldByIndex(f.Index).Interface(), value.Interface()) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			out = append(out, path.Child(name).String())
		}
	}
	return out
}
