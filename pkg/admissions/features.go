package admissions

import (
	"fmt"

	"k8s.io/component-base/featuregate"
)

// Features returns the gates that plugins here look at, with the defaults of
// kube-apiserver v1.37.
func Features() (featuregate.MutableFeatureGate, error) {
	gate := featuregate.NewFeatureGate()
	for _, f := range Families() {
		for _, p := range f.Plugins {
			if err := gate.Add(p.Features); err != nil {
				return nil, fmt.Errorf("feature gates of %s: %w", p.Name, err)
			}
		}
	}
	return gate, nil
}
