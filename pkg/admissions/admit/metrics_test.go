package admit_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

func TestMetricsOfPlugins(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	pods := admit.On("pods", create)
	var r recorder
	plugins := []*admit.Plugin{r.plugin("A", nil, pods), r.plugin("B", errors.New("no"), pods)}
	s, err := admit.Family{Name: "test", Plugins: plugins}.Service(admit.Deps{Metrics: admit.NewMetrics(registry)}, map[string][]byte{"A": nil, "B": nil})
	if err != nil {
		t.Fatal(err)
	}
	s.Mutate(t.Context(), request(create, `{}`, ""))
	s.Mutate(t.Context(), request(create, `{}`, ""))
	s.Validate(t.Context(), request(create, `{}`, ""))
	got := map[string]uint64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := f.GetName()
			for _, l := range m.GetLabel() {
				labels += " " + l.GetValue()
			}
			got[labels] = m.GetHistogram().GetSampleCount()
		}
	}
	name := "postern_admission_controller_admission_duration_seconds "
	want := map[string]uint64{
		name + "A CREATE false admit": 2, name + "A CREATE false validate": 1,
		name + "B CREATE true admit": 2, name + "B CREATE true validate": 1,
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("Got other counts (-got +want):\n%s", diff)
	}
}
