// Package podpreset adds environment variables, volumes and mounts of PodPresets to new pods. See README.md.
package podpreset

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/record"

	"github.com/postern-dev/postern/internal/reads"
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

var errNoMemory = errors.New("other pods get so much from PodPresets that there is no memory for this one, repeat the request later")

// Plugin is PodPreset.
//
// Upstream: plugin/pkg/admission/podpreset in Kubernetes 1.18.
var Plugin = &admit.Plugin{
	Name: "PodPreset",
	Rules: []admit.Rule{
		admit.On("pods", admissionv1.Create).In(admit.Mutating),
		{
			Phase: admit.Validating, Group: settingsv1alpha1.GroupName, Versions: []string{settingsv1alpha1.GroupVersion().Version}, Resources: []string{settingsv1alpha1.Resource},
			Operations: []admissionv1.Operation{admissionv1.Create, admissionv1.Update},
			Condition:  "has(object.spec) && has(object.spec.selector) && (has(object.spec.selector.matchLabels) || has(object.spec.selector.matchExpressions))",
		},
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
	// memory limits the memory that presets add to the pods of concurrent requests.
	memory *semaphore.Weighted
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
	p := &plugin{presets: known, recorder: newRecorder(d), memory: semaphore.NewWeighted(maxAdded)}
	return admit.Handler{Mutate: admit.Typed(p.mutate), Validate: validate}, nil
}

// mutate applies all presets that select the pod, or none of them.
func (p *plugin) mutate(ctx context.Context, r *admit.Request, pod, _ *corev1.Pod) error {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror || pod.Annotations[exclude] == "true" {
		return nil
	}
	selected, err := p.presets.selecting(ctx, r.Namespace, pod.Labels)
	if invalid, ok := errors.AsType[*invalidError](err); ok {
		return admit.Forbidden(r, fmt.Errorf("filtering pod presets failed: %w", invalid))
	}
	if errors.Is(err, errTooMuch) {
		return admit.Forbidden(r, err)
	}
	if err != nil || len(selected) == 0 {
		return err
	}
	if err := p.reserve(ctx, pod, selected); err != nil {
		return err
	}
	// The lists of the pod are made again.
	end, err := admit.Hold(ctx, r.CopyMemory())
	if err != nil {
		return err
	}
	defer end()
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

// reserve waits until the memory for the additions of the presets is free, and reserves it until the request ends. The
// router has reserved memory only for the pod in the request, which may become much larger. The authors of other pods choose how
// long it waits, so it denies the request if there is no memory in time.
func (p *plugin) reserve(ctx context.Context, pod *corev1.Pod, selected []*preset) error {
	containers := len(pod.Spec.InitContainers) + len(pod.Spec.Containers) + len(pod.Spec.EphemeralContainers)
	size := 0
	for _, s := range selected {
		if size += s.podSize + containers*s.containerSize; size >= maxAdded {
			size = maxAdded
			break
		}
	}
	if size <= maxUnreserved {
		return nil
	}
	if !p.memory.TryAcquire(int64(size)) {
		reads.Queued(ctx)
		early, cancel := admit.Early(ctx)
		defer cancel()
		if p.memory.Acquire(early, int64(size)) != nil {
			return admit.TooMany(errNoMemory)
		}
	}
	context.AfterFunc(ctx, func() { p.memory.Release(int64(size)) })
	return nil
}

// validate denies a preset with an invalid selector. The schema of a CustomResourceDefinition cannot restrict the keys of
// matchLabels, and not the sum of all values.
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
	return admit.Deny(apierrors.NewInvalid(u.GroupVersionKind().GroupKind(), u.GetName(), field.ErrorList{invalid}))
}
