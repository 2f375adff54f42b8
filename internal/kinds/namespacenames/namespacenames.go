// Package namespacenames checks the names of namespaces in configurations.
package namespacenames

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/postern-dev/postern/pkg/admit"
)

// CheckName returns an error if the value of a field of a configuration is no valid
// name of a namespace.
func CheckName(field, name string) error {
	if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
		return admit.InvalidField(field, "no namespace can be called %q: %s", name, wrong[0])
	}
	return nil
}

// CheckNames is CheckName for each entry of a list. It returns the first error.
func CheckNames(field string, names []string) error {
	for i, name := range names {
		if err := CheckName(fmt.Sprintf("%s[%d]", field, i), name); err != nil {
			return err
		}
	}
	return nil
}
