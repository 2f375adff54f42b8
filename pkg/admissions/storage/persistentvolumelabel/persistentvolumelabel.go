// Package persistentvolumelabel labels new volumes with their zone and region, and restricts pods that use
// the volumes to that place by a node affinity. See README.md.
package persistentvolumelabel

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/pkg/admit"
)

// Plugin is PersistentVolumeLabel.
//
// Upstream: plugin/pkg/admission/storage/persistentvolume/label, until v1.30.
var Plugin = &admit.Plugin{
	Name: "PersistentVolumeLabel",
	// The rule has no condition: a webhook that is called later may add labels, a node affinity or the source
	// of the volume.
	Rules:        []admit.Rule{admit.On("persistentvolumes", admissionv1.Create)},
	Configurable: true,
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		rules, endpoint, err := load(data, d.Clock)
		if err != nil {
			return admit.Handler{}, err
		}
		p := &plugin{rules: rules, endpoint: endpoint}
		return admit.Handler{Mutate: admit.Typed(p.mutate)}, nil
	},
}

type plugin struct {
	rules []rule
	// endpoint is nil if none is configured.
	endpoint *endpoint
}

func (p *plugin) mutate(ctx context.Context, r *admit.Request, volume, _ *corev1.PersistentVolume) error {
	labels, err := p.labels(ctx, r, volume)
	if err != nil || len(labels) == 0 {
		return err
	}
	requirements, err := requirementsOf(labels)
	if err != nil {
		return admit.Forbidden(r, err)
	}
	if volume.Labels == nil {
		volume.Labels = map[string]string{}
	}
	// Upstream: labels that a user set are overwritten.
	maps.Copy(volume.Labels, labels)
	require(volume, requirements)
	return nil
}

// labels asks the sources in order until one returns labels.
func (p *plugin) labels(ctx context.Context, r *admit.Request, volume *corev1.PersistentVolume) (map[string]string, error) {
	if labels := trustedLabels(volume); labels != nil {
		return labels, nil
	}
	if labels := affinityLabels(volume); labels != nil {
		return labels, nil
	}
	id, ok := identityOf(volume)
	if !ok {
		return nil, nil
	}
	labels, err := match(p.rules, id)
	switch {
	case err != nil:
		return nil, admit.Forbidden(r, err)
	case labels != nil || p.endpoint == nil:
		return labels, nil
	case id.size() > questionSize:
		return nil, admit.Forbidden(r, fmt.Errorf("the endpoint of labels cannot be asked about a volume whose handle, name and driver have %d bytes, more than %d", id.size(), questionSize))
	}
	return p.endpoint.labels(ctx, r, id)
}

// requirementsOf returns, by key, the requirements for a node to use a volume with these labels.
func requirementsOf(labels map[string]string) ([]corev1.NodeSelectorRequirement, error) {
	var out []corev1.NodeSelectorRequirement
	for key, value := range labels {
		values := []string{value}
		if isZone(key) {
			if values = zonesOf(value); values == nil {
				return nil, fmt.Errorf("failed to convert label string for Zone: %s to a Set", value)
			}
		}
		out = append(out, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values})
	}
	slices.SortFunc(out, func(a, b corev1.NodeSelectorRequirement) int { return cmp.Compare(a.Key, b.Key) })
	return out, nil
}

// require adds the requirements to each term of the volume's node affinity. If any term already has a
// requirement for one of the keys, the affinity is unchanged.
func require(volume *corev1.PersistentVolume, requirements []corev1.NodeSelectorRequirement) {
	if slices.ContainsFunc(termsOf(volume), func(term corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(term.MatchExpressions, func(have corev1.NodeSelectorRequirement) bool {
			return slices.ContainsFunc(requirements, func(r corev1.NodeSelectorRequirement) bool { return r.Key == have.Key })
		})
	}) {
		return
	}
	spec := &volume.Spec
	if spec.NodeAffinity == nil {
		spec.NodeAffinity = &corev1.VolumeNodeAffinity{}
	}
	if spec.NodeAffinity.Required == nil {
		spec.NodeAffinity.Required = &corev1.NodeSelector{}
	}
	required := spec.NodeAffinity.Required
	if len(required.NodeSelectorTerms) == 0 {
		required.NodeSelectorTerms = make([]corev1.NodeSelectorTerm, 1)
	}
	for i := range required.NodeSelectorTerms {
		term := &required.NodeSelectorTerms[i]
		for _, requirement := range requirements {
			term.MatchExpressions = append(term.MatchExpressions, *requirement.DeepCopy())
		}
	}
}

func termsOf(volume *corev1.PersistentVolume) []corev1.NodeSelectorTerm {
	if affinity := volume.Spec.NodeAffinity; affinity != nil && affinity.Required != nil {
		return affinity.Required.NodeSelectorTerms
	}
	return nil
}
