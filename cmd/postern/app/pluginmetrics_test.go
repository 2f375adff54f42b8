package app

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/pkg/admit"
)

// TestObservePlugins has a plugin that denies, one that fails, and one that gets no request.
func TestObservePlugins(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	observe := observePlugins(registry, []string{"A", "B", "C"})
	r := &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{Operation: admissionv1.Create}}
	observe("A", admit.Mutating, r, time.Second, nil)
	observe("A", admit.Mutating, r, time.Second, nil)
	observe("A", admit.Validating, r, time.Second, nil)
	observe("A", admit.Validating, r, time.Second, fmt.Errorf("wrapped: %w", admit.ForbiddenAs(r, errors.New("no"))))
	observe("B", admit.Mutating, r, time.Second, errors.New("no"))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := f.GetName()
			for _, l := range m.GetLabel() {
				labels += " " + l.GetValue()
			}
			got[labels] = m.GetHistogram().GetSampleCount() + uint64(m.GetCounter().GetValue())
		}
	}
	const name = "postern_admission_controller_admission_duration_seconds "
	const denials = "postern_denials_total "
	want := map[string]uint64{
		name + "A CREATE false admit": 2, name + "A CREATE false validate": 1, name + "A CREATE true validate": 1, name + "B CREATE true admit": 1,
		denials + "A": 1, denials + "B": 0, denials + "C": 0,
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("Got other counts (-got +want):\n%s", diff)
	}
}
