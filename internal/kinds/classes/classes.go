// Package classes finds the default among objects such as StorageClasses and
// IngressClasses.
package classes

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Default returns the name of the class that one of the annotations, set to "true",
// marks as the default, or "" if there is none. Of several classes Default returns
// the newest, and of equally old classes the first by name.
func Default[T metav1.Object](classes []T, annotations ...string) string {
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
