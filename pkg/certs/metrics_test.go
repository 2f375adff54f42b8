package certs_test

import (
	"maps"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/pkg/certs"
)

// TestWriteBackIsCounted deletes the Secret of a registered replica.
func TestWriteBackIsCounted(t *testing.T) {
	clock, registry := newClock(), metrics.NewKubeRegistry()
	secrets := secretStore(fake.NewClientset())
	store := &flaky{Store: secrets}
	o := options(clock)
	o.Metrics = certs.NewMetrics(registry)
	a := newAuthority(t, store, o)
	a.Held([][]byte{a.Bundle()})
	logs := run(t, a, clock)
	if _, err := secrets.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	step(t, clock, store, certs.DefaultSettle)
	step(t, clock, store, certs.DefaultSettle)
	eventually(t, "the repair is counted", func() bool { return value(t, registry, "postern_ca_repairs_total", "missing") == 1 })
	if got := value(t, registry, "postern_ca_steps_total", "created"); got != 1 {
		t.Errorf("Counted %v CAs that were created, want 1", got)
	}
	if got, want := value(t, registry, "postern_ca_expiry_timestamp_seconds", ""), float64(parse(t, a.Bundle())[0].NotAfter.Unix()); got != want {
		t.Errorf("The CA expires at %v, want %v", got, want)
	}
	if logs.count("The stored CA was repaired") != 1 {
		t.Error("The repair was not logged once")
	}
	ca, err := secrets.Load(t.Context())
	if err != nil || ca == nil {
		t.Errorf("Loading the restored CA: %v", err)
	}
}

// value returns the value of a metric with the given label value, or without a label.
func value(t *testing.T, registry metrics.KubeRegistry, name, label string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// TestRepairsStartAtZero checks that Prometheus sees the first repair as an increase.
func TestRepairsStartAtZero(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	certs.NewMetrics(registry)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "postern_ca_repairs_total" {
				got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if want := map[string]float64{"missing": 0, "invalid": 0, "replaced": 0}; !maps.Equal(got, want) {
		t.Errorf("Got %v, want %v", got, want)
	}
}
