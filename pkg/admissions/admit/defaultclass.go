package admit

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultClass returns the name of the class that one of the annotations, set to
// "true", makes the default; "" if there is none. Of several it is the newest,
// and of those that are equally old the first by name.
func DefaultClass[T metav1.Object](classes []T, annotations ...string) string {
	defaults := slices.DeleteFunc(slices.Clone(classes), func(class T) bool {
		return !slices.ContainsFunc(annotations, func(key string) bool { return class.GetAnnotations()[key] == "true" })
	})
	if len(defaults) == 0 {
		return ""
	}
	return slices.MinFunc(defaults, func(a, b T) int {
		return cmp.Or(
			b.GetCreationTimestamp().Time.Compare(a.GetCreationTimestamp().Time),
			cmp.Compare(a.GetName(), b.GetName()),
		)
	}).GetName()
}
