package registration

import (
	"encoding/json"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// repairInterval is the time between two repairs of a configuration that
	// somebody keeps changing, after repairBurst repairs.
	repairInterval = 5 * time.Second
	repairBurst    = 20
)

// repairs remembers the configurations that this replica has seen registered as
// desired. If the desired configuration has not changed since, its next change is a
// repair. The number of repairs is bounded, so that two programs that disagree about
// a configuration do not load the API server.
type repairs map[configKey]*repair

type repair struct {
	desired string
	limiter *rate.Limiter
	told    bool
}

// changed reports whether the desired configuration differs from the last one that
// this replica has seen registered.
func (r repairs) changed(key configKey, want *unstructured.Unstructured) bool {
	known := r[key]
	return known == nil || known.desired != text(want)
}

// seen remembers that the configuration is registered as desired.
func (r repairs) seen(key configKey, want *unstructured.Unstructured) {
	if r[key] == nil {
		r[key] = &repair{limiter: rate.NewLimiter(rate.Every(repairInterval), repairBurst)}
	}
	r[key].desired = text(want)
}

// wait returns how long the next repair has to wait, or 0. first is true for the first repair that has to wait
// since the limit was last kept.
func (r repairs) wait(key configKey, now time.Time) (wait time.Duration, first bool) {
	known := r[key]
	if known.limiter.AllowN(now, 1) {
		known.told = known.told && known.limiter.TokensAt(now) < 1
		return 0, false
	}
	first, known.told = !known.told, true
	return repairInterval, first
}

// contested reports whether repairs had to wait, and the last one has not lasted for two intervals yet.
func (r repairs) contested(key configKey, now time.Time) bool {
	known := r[key]
	return known != nil && known.told && known.limiter.TokensAt(now) < 2
}

// text returns the configuration as a text for comparisons, without its resourceVersion.
func text(u *unstructured.Unstructured) string {
	c := &unstructured.Unstructured{Object: u.Object}
	version := c.GetResourceVersion()
	c.SetResourceVersion("")
	data, err := json.Marshal(c.Object)
	c.SetResourceVersion(version)
	if err != nil {
		return ""
	}
	return string(data)
}
