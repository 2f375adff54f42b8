package fleetquota

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
)

// failed is the outcome of a demand that could not be decided.
const failed ledger.Outcome = "failed"

// decisions holds the metrics of the plugin.
type decisions struct {
	metrics.BaseStableCollector

	ledgers *ledgers
	decided *metrics.CounterVec
	writes  *metrics.CounterVec
	amounts *metrics.Desc
	away    *metrics.Desc
}

func newDecisions(registry metrics.KubeRegistry, l *ledgers) (*decisions, error) {
	d := &decisions{
		ledgers: l,
		decided: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "postern_fleetquota_decisions_total", StabilityLevel: metrics.ALPHA,
			Help: "Requests that use more of a fleet quota, by outcome: local, claimed, refused, full, failed.",
		}, []string{"quota", "outcome"}),
		writes: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "postern_fleetquota_hub_writes_total", StabilityLevel: metrics.ALPHA,
			Help: "Writes to the hub, by purpose (join, claim, return, report) and result (ok, conflict, error).",
		}, []string{"quota", "purpose", "result"}),
		amounts: metrics.NewDesc("postern_fleetquota_amount", "Limit of a fleet quota, allowance of this cluster, and what is charged to it.",
			[]string{"quota", "resource", "kind"}, nil, metrics.ALPHA, ""),
		away: metrics.NewDesc("postern_fleetquota_hub_away_seconds", "How long the hub has not answered requests for a fleet quota. 0 while it answers.",
			[]string{"quota"}, nil, metrics.ALPHA, ""),
	}
	if registry == nil {
		return d, nil
	}
	for _, c := range []metrics.Registerable{d.decided, d.writes} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return d, registry.CustomRegister(d)
}

// DescribeWithStability implements metrics.StableCollector.
func (d *decisions) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- d.amounts
	ch <- d.away
}

// CollectWithStability implements metrics.StableCollector.
func (d *decisions) CollectWithStability(ch chan<- metrics.Metric) {
	d.ledgers.amounts(func(quota string, resource corev1.ResourceName, kind string, value float64) {
		ch <- metrics.NewLazyConstMetric(d.amounts, metrics.GaugeValue, value, quota, string(resource), kind)
	})
	for _, b := range d.ledgers.all() {
		seconds := 0.0
		if away := b.account.Away(); away != nil {
			seconds = d.ledgers.clock.Since(away.Since).Seconds()
		}
		ch <- metrics.NewLazyConstMetric(d.away, metrics.GaugeValue, seconds, b.account.Name())
	}
}

func (d *decisions) count(quota string, outcome ledger.Outcome) {
	d.decided.WithLabelValues(quota, string(outcome)).Inc()
}

func (d *decisions) wrote(quota, purpose string, err error) {
	result := "ok"
	switch {
	case apierrors.IsConflict(err):
		result = "conflict"
	case err != nil:
		result = "error"
	}
	d.writes.WithLabelValues(quota, purpose, result).Inc()
}
