package podnodeselector

import (
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

const (
	selectorsField = "podNodeSelectorPluginConfig"
	// clusterDefault is the one key of the selectors that is no namespace.
	clusterDefault = "clusterDefaultNodeSelector"
)

// config is the plugin's configuration, which has no version in kube-apiserver.
type config struct {
	Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
	// ImagePolicy belongs to ImagePolicyWebhook. In the oldest form of the
	// configuration file both plugins get all of it.
	ImagePolicy any `json:"imagePolicy"`
}

// load returns the selectors by namespace. kube-apiserver ignores a file that
// does not decode, and parses selectors when a pod comes.
func load(data []byte) (map[string]labels.Set, error) {
	var c config
	if len(data) > 0 {
		if err := admit.DecodeConfig(data, &c); err != nil {
			return nil, err
		}
	}
	out := make(map[string]labels.Set, len(c.Selectors))
	// In order, so that of two mistakes it is always the same that is told.
	for _, name := range slices.Sorted(maps.Keys(c.Selectors)) {
		selector, err := labels.ConvertSelectorToLabelsMap(c.Selectors[name])
		if wrong, ok := errors.AsType[*field.Error](err); ok {
			err = errors.New(wrong.ErrorBody())
		}
		if err != nil {
			return nil, admit.InvalidField(selectorsField+"."+name, "%w", err)
		}
		out[name] = selector
	}
	return out, nil
}
