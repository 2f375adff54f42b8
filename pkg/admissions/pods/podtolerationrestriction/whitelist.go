package podtolerationrestriction

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/internal/kinds/tolerations"
)

// whitelist holds tolerations by the taints that they tolerate, because both a pod and a whitelist may have thousands.
type whitelist map[taints][]corev1.Toleration

// taints are what a toleration tolerates. An empty effect stands for all effects.
type taints struct {
	key    string
	effect corev1.TaintEffect
	// all is true for all values of the key, or of all keys if it is empty. Otherwise value is the only one.
	all   bool
	value string
}

func index(list []corev1.Toleration) whitelist {
	w := whitelist{}
	for _, t := range list {
		of := taints{key: t.Key, effect: t.Effect, all: t.Operator == corev1.TolerationOpExists}
		if !of.all {
			of.value = t.Value
		}
		w[of] = append(w[of], t)
	}
	return w
}

// covers reports whether one of the tolerations covers t.
func (w whitelist) covers(t *corev1.Toleration) bool {
	for _, effect := range []corev1.TaintEffect{"", t.Effect} {
		for _, of := range []taints{{t.Key, effect, true, ""}, {"", effect, true, ""}, {t.Key, effect, false, t.Value}} {
			for _, wide := range w[of] {
				if tolerations.Covers(wide, *t) {
					return true
				}
			}
		}
	}
	return false
}
