package podnodeselector

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/postern-dev/postern/internal/kinds/unversioned"
	"github.com/postern-dev/postern/pkg/admit"
)

// clusterDefault is the only key of the selectors that is not the name of a
// namespace.
const clusterDefault = "clusterDefaultNodeSelector"

// config is the plugin's configuration. kube-apiserver's configuration has no
// version.
type config struct {
	Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
	// ImagePolicy is the configuration of ImagePolicyWebhook. In the oldest format
	// of the configuration file both plugins read the whole file.
	ImagePolicy any `json:"imagePolicy"`
}

// decode reads the configuration. As in kube-apiserver, upper and lower case do not
// matter in the names of its fields.
func decode(data []byte) (config, error) {
	given, err := admit.LoadConfig[map[string]any](data)
	if err != nil {
		return config{}, err
	}
	canonical, err := unversioned.Canonical(given, "", unversioned.SelectorsField, unversioned.ImagePolicyField)
	if err != nil {
		return config{}, err
	}
	document, err := json.Marshal(canonical)
	if err != nil {
		return config{}, fmt.Errorf("encoding the configuration: %w", err)
	}
	return admit.LoadConfig[config](document)
}

// load returns the selectors by namespace. kube-apiserver ignores a file that
// does not decode, and parses selectors when a pod comes.
func load(data []byte) (map[string]labels.Set, error) {
	c, err := decode(data)
	if err != nil {
		return nil, err
	}
	out := make(map[string]labels.Set, len(c.Selectors))
	// The keys are sorted, so that of two mistakes load always reports the same one.
	for _, name := range slices.Sorted(maps.Keys(c.Selectors)) {
		selector, err := labels.ConvertSelectorToLabelsMap(c.Selectors[name])
		if wrong, ok := errors.AsType[*field.Error](err); ok {
			err = errors.New(wrong.ErrorBody())
		}
		if err != nil {
			return nil, admit.InvalidField(unversioned.SelectorsField+"."+name, "%w", err)
		}
		out[name] = selector
	}
	return out, nil
}
