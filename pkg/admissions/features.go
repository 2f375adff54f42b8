package admissions

import (
	"fmt"

	"k8s.io/component-base/featuregate"
)

// Features returns the gates that plugins here look at, with the defaults of
// kube-apiserver v1.37.
func Features() (featuregate.MutableFeatureGate, error) {
	gate := featuregate.NewFeatureGate()
	if err := gate.Add(map[featuregate.Feature]featuregate.FeatureSpec{}); err != nil {
		return nil, fmt.Errorf("feature gates: %w", err)
	}
	return gate, nil
}
