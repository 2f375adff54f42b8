// Package podpreset adds environment variables, volumes and mounts of PodPresets to new pods. See README.md.
package podpreset

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/record"

	"github.com/postern-dev/postern/internal/quantities"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
	settingsv1alpha1 "github.com/postern-dev/postern/pkg/apis/settings/v1alpha1"
)

const (
	// exclude is the annotation of pods to which no preset is applied.
	exclude = "podpreset.admission.kubernetes.io/exclude"
	// applied is the prefix of the annotations with the presets of a pod. Their values are resource versions.
	applied = "podpreset.admission.kubernetes.io/podpreset-"
)

// Plugin is PodPreset.
//
// Upstream: plugin/pkg/admission/podpreset in Kubernetes 1.18.
var Plugin = &admit.Plugin{
	Name: "PodPreset",
	Rules: []admit.Rule{
		admit.On("pods", admissionv1.Create).In(admit.Mutating),
		admit.On(settingsv1alpha1.Resource, admissionv1.Create, admissionv1.Update).Of(settingsv1alpha1.GroupName, settingsv1alpha1.GroupVersion().Version).
			In(admit.Validating).
			If("has(object.spec) && (has(object.spec.env) || has(object.spec.volumes) || " +
				"has(object.spec.selector) && (has(object.spec.selector.matchLabels) || has(object.spec.selector.matchExpressions)))"),
	},
	SideEffects:  true, // Events.
	Configurable: true,
	Access: access.Rules{
		access.Lookup("settings.postern.dev", "podpresets"), access.Lookup("settings.k8s.io", "podpresets"),
		access.To("", "events", "create", "patch"),
	},
	New: newHandler,
}

type plugin struct {
	presets  *presets
	recorder record.EventRecorder
}

func newHandler(d admit.Deps, data []byte) (admit.Handler, error) {
	c, err := load(data)
	if err != nil {
		return admit.Handler{}, err
	}
	known, err := newPresets(d, c.LegacyAPIGroup)
	if err != nil {
		return admit.Handler{}, err
	}
	p := &plugin{presets: known, recorder: newRecorder(d)}
	return admit.Handler{Mutate: admit.Typed(p.mutate), Validate: validate}, nil
}

// mutate applies all presets that select the pod, or none of them.
func (p *plugin) mutate(ctx context.Context, r *admit.Request, pod, _ *corev1.Pod) error {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror || pod.Annotations[exclude] == "true" {
		return nil
	}
	selected, err := p.presets.selecting(ctx, r.Namespace, pod)
	if invalid, ok := errors.AsType[*invalidError](err); ok {
		return admit.Forbidden(r, fmt.Errorf("filtering pod presets failed: %w", invalid))
	}
	if chosen, ok := errors.AsType[tooManyError](err); ok {
		return admit.Forbidden(r, chosen)
	}
	if err != nil || len(selected) == 0 {
		return err
	}
	added, needed := growth(pod, selected)
	// The lists of the pod are made again.
	end, err := admit.Hold(ctx, r.CopyMemory()+needed)
	if err != nil {
		return err
	}
	defer end()
	if err := r.Grow(ctx, added); err != nil {
		return err
	}
	err = apply(ctx, pod, selected)
	if conflict, ok := errors.AsType[*conflictError](err); ok {
		p.report(r, pod, conflict)
		return nil
	}
	if errors.Is(err, errTooLarge) {
		return admit.Forbidden(r, err)
	}
	return err
}

// validate denies a preset with an invalid selector or quantity. The schema of a CustomResourceDefinition cannot restrict the keys
// of matchLabels, and not the sum of all values, nor the exponents of quantities.
func validate(_ context.Context, r *admit.Request) error {
	u, ok := r.Object.(*unstructured.Unstructured)
	if !ok {
		return admit.Forbidden(r, fmt.Errorf("unexpected type %T", r.Object))
	}
	err := compile(u).err
	if err == nil {
		return nil
	}
	invalid := field.Invalid(field.NewPath("spec", "selector"), "", err.Error())
	if far, ok := errors.AsType[*farError](err); ok {
		invalid = field.Invalid(field.NewPath("spec"+far.path), "", quantities.ErrFarCustom.Error())
	}
	return admit.Deny(apierrors.NewInvalid(u.GroupVersionKind().GroupKind(), u.GetName(), field.ErrorList{invalid}))
}
