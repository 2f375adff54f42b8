// Package unversioned has the rules for the configurations of ImagePolicyWebhook and PodNodeSelector, which have no
// version. The case of their field names is ignored, as in kube-apiserver. In the oldest form of the configuration
// file, both plugins read the whole file.
package unversioned

import (
	"maps"
	"slices"
	"strings"

	"github.com/postern-dev/postern/pkg/admit"
)

// The top-level fields of the file.
const (
	ImagePolicyField = "imagePolicy"
	SelectorsField   = "podNodeSelectorPluginConfig"
)

// Canonical returns the mapping with its keys in the given spelling. Other keys are unchanged. Path is the path of the
// mapping, for errors. Two spellings of one name are an error.
func Canonical(given map[string]any, path string, names ...string) (map[string]any, error) {
	canonical := make(map[string]any, len(given))
	// The keys are sorted, so that of two mistakes Canonical always reports the same one.
	for _, key := range slices.Sorted(maps.Keys(given)) {
		name := key
		if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(key, n) }); i >= 0 {
			name = names[i]
		}
		if _, twice := canonical[name]; twice {
			return nil, admit.InvalidField(path+key, "the field %s is there twice", name)
		}
		canonical[name] = given[key]
	}
	return canonical, nil
}
