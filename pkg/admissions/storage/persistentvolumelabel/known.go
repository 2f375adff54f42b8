package persistentvolumelabel

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

const (
	// provisioned is the annotation that a provisioner puts on its volumes.
	provisioned = "pv.kubernetes.io/provisioned-by"
	// separator is between the zones of a volume that is in several.
	separator = "__"
)

// isZone reports whether a label says in which zones something is.
func isZone(key string) bool {
	return key == corev1.LabelTopologyZone || key == corev1.LabelFailureDomainBetaZone
}

// zonesOf returns the zones in the value of a label, sorted; nil if one of them is
// empty.
func zonesOf(value string) []string {
	zones := strings.Split(value, separator)
	for i, zone := range zones {
		if zones[i] = strings.TrimSpace(zone); zones[i] == "" {
			return nil
		}
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}

// trustedLabels returns the labels of a volume that a provisioner made, if they
// say zone and region.
func trustedLabels(volume *corev1.PersistentVolume) map[string]string {
	if _, ok := volume.Annotations[provisioned]; !ok {
		return nil
	}
	for _, pair := range [][2]string{
		{corev1.LabelTopologyZone, corev1.LabelTopologyRegion},
		{corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion},
	} {
		zone, hasZone := volume.Labels[pair[0]]
		region, hasRegion := volume.Labels[pair[1]]
		if hasZone && hasRegion {
			return map[string]string{pair[0]: zone, pair[1]: region}
		}
	}
	return nil
}

// trustworthy is the CEL for volumes whose labels may be trusted.
func trustworthy() string {
	labels := admit.CELValue("object.metadata.labels", "{}")
	has := func(keys ...string) string {
		return "('" + strings.Join(keys, "' in "+labels+" && '") + "' in " + labels + ")"
	}
	return "('" + provisioned + "' in " + admit.CELValue("object.metadata.annotations", "{}") + " && (" +
		has(corev1.LabelTopologyZone, corev1.LabelTopologyRegion) + " || " +
		has(corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion) + "))"
}

// affinityLabels returns what the node affinity of a volume leaves no doubt about.
// The API server refuses a value that is no label's, so such a one is not taken.
func affinityLabels(volume *corev1.PersistentVolume) map[string]string {
	labels := map[string]string{}
	for _, key := range topologyKeys() {
		values := pinnedTo(termsOf(volume), key)
		value := strings.Join(values, separator)
		switch {
		case len(values) == 0 || len(validation.IsValidLabelValue(value)) > 0:
		case isZone(key) && slices.Equal(zonesOf(value), values):
			labels[key] = value
		case !isZone(key) && len(values) == 1 && value != "":
			labels[key] = value
		}
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

// pinnedTo returns the values, sorted, of which a node has to have one at a key to
// match any of the terms; nil if that is not plain to see.
func pinnedTo(terms []corev1.NodeSelectorTerm, key string) []string {
	var values []string
	for _, term := range terms {
		var own []corev1.NodeSelectorRequirement
		for _, r := range term.MatchExpressions {
			if r.Key == key {
				own = append(own, r)
			}
		}
		// What several requirements come to together is not worked out.
		if len(own) != 1 || own[0].Operator != corev1.NodeSelectorOpIn {
			return nil
		}
		values = append(values, own[0].Values...)
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// pinned is the CEL for volumes whose node affinity says something about a zone or
// a region.
func pinned() string {
	return admit.CELList("object.spec.nodeAffinity.required.nodeSelectorTerms") + ".exists(t, " +
		admit.CELList("t.matchExpressions") + ".exists(e, " +
		admit.CELValue("e.key", "''") + " in " + admit.CELStrings(topologyKeys()) + "))"
}

func topologyKeys() []string {
	return []string{
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
	}
}
