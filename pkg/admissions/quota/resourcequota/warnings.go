package resourcequota

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/postern-dev/postern/pkg/admit"
)

const (
	// maxWarnings bounds the warnings of one request, and maxName the length of a name in them.
	maxWarnings = 5
	maxName     = 40
)

// warn says how much is left of the resources that the request uses, of those of which little is left.
func (p *plugin) warn(r *admit.Request, before, after []corev1.ResourceQuota) {
	warnings := 0
	for i := range after {
		used, hard := after[i].Status.Used, after[i].Status.Hard
		for _, name := range sets.List(sets.KeySet(hard)) {
			now, limit := used[name], hard[name]
			if now.Cmp(before[i].Status.Used[name]) <= 0 || now.AsApproximateFloat64()*100 <= limit.AsApproximateFloat64()*float64(p.config.WarnAbove) {
				continue
			}
			if warnings++; warnings > maxWarnings {
				return
			}
			left := limit.DeepCopy()
			left.Sub(now)
			r.Warn("quota %.*s: %s of %s left of %.*s", maxName, after[i].Name, left.String(), limit.String(), maxName, name)
		}
	}
}
