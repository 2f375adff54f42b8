package podtopologylabels

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/postern-dev/postern/pkg/admit"
)

// config is the plugin's configuration. kube-apiserver's plugin has none.
type config struct {
	// AdditionalLabels are the keys of further labels to copy, besides the zone and
	// the region.
	AdditionalLabels []string `json:"additionalLabels"`
}

// load returns the keys of the labels to copy.
func load(data []byte) ([]string, error) {
	var c config
	if len(data) > 0 {
		if err := admit.DecodeConfig(data, &c); err != nil {
			return nil, err
		}
	}
	for i, key := range c.AdditionalLabels {
		if errs := validation.IsQualifiedName(key); len(errs) > 0 {
			return nil, admit.InvalidField(fmt.Sprintf("additionalLabels[%d]", i), "%q is no label key: %s", key, strings.Join(errs, "; "))
		}
	}
	return append(inTreeLabels(), c.AdditionalLabels...), nil
}

// inTreeLabels are the labels that kube-apiserver's plugin copies.
func inTreeLabels() []string { return []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} }
