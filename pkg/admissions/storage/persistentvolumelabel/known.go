package persistentvolumelabel

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// provisioned is the annotation that a provisioner sets on its volumes.
	provisioned = "pv.kubernetes.io/provisioned-by"
	// separator separates the zones of a volume that is in several zones.
	separator = "__"
)

// isZone reports whether the value of a label lists zones.
func isZone(key string) bool {
	return key == corev1.LabelTopologyZone || key == corev1.LabelFailureDomainBetaZone
}

// zonesOf returns the sorted zones in the value of a label, or nil if one zone is empty.
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

// trustedLabels returns the labels of a volume from a provisioner, if they contain both zone and region.
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

// affinityLabels returns the labels that follow unambiguously from the node affinity of a volume. An invalid
// label value is skipped, because the API server would refuse it.
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

// pinnedTo returns the sorted values of a key, one of which a node needs to match any of the terms. It
// returns nil if the terms do not give these values directly.
func pinnedTo(terms []corev1.NodeSelectorTerm, key string) []string {
	var values []string
	for _, term := range terms {
		var own []corev1.NodeSelectorRequirement
		for _, r := range term.MatchExpressions {
			if r.Key == key {
				own = append(own, r)
			}
		}
		// Several requirements about one key are not combined.
		if len(own) != 1 || own[0].Operator != corev1.NodeSelectorOpIn {
			return nil
		}
		values = append(values, own[0].Values...)
	}
	slices.Sort(values)
	return slices.Compact(values)
}

func topologyKeys() []string {
	return []string{
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
	}
}
