package parity_test

import (
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/postern-dev/postern/pkg/admissions"
)

// TestFeatureDefaults fails if the default of a feature gate differs from kube-apiserver's.
func TestFeatureDefaults(t *testing.T) {
	if _, err := admissions.Families().Features(); err != nil {
		t.Errorf("Two plugins differ about a gate: %v", err)
	}
	all := utilfeature.DefaultMutableFeatureGate.GetAll()
	for _, family := range admissions.Families() {
		for _, p := range family.Plugins {
			for name, got := range p.Features {
				want, ok := all[name]
				switch {
				case !ok && isUpstream(p.Name):
					t.Errorf("%s: kube-apiserver has no gate %s", p.Name, name)
				case ok && (got.Default != want.Default || got.PreRelease != want.PreRelease):
					t.Errorf("%s: got gate %s %s with default %t, want %s with default %t", p.Name, name, got.PreRelease, got.Default, want.PreRelease, want.Default)
				}
			}
		}
	}
}
