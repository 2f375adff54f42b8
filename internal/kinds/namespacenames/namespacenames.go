// Package namespacenames checks the names of namespaces in configurations.
package namespacenames

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/postern-dev/postern/pkg/admit"
)

// CheckNames returns an error for the first entry of a list, in a field of a
// configuration, that is no valid name of a namespace.
func CheckNames(field string, names []string) error {
	for i, name := range names {
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return admit.InvalidField(fmt.Sprintf("%s[%d]", field, i), "no namespace can be called %q: %s", name, wrong[0])
		}
	}
	return nil
}
