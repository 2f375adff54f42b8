// Package limitranger gives containers the resources that a namespace's LimitRanges
// have for them by default, and denies pods and claims outside their bounds. See
// README.md.
package limitranger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// podLevelResources lets a pod say what it needs as a whole.
const podLevelResources featuregate.Feature = "PodLevelResources"

// annotation says what was filled in.
const annotation = "kubernetes.io/limit-ranger"

// Plugin is LimitRanger.
//
// Upstream: plugin/pkg/admission/limitranger.
var Plugin = &admit.Plugin{
	Name: "LimitRanger",
	Rules: []admit.Rule{
		admit.On("pods", admissionv1.Create),
		admit.On("pods/resize", admissionv1.Update),
		admit.On("persistentvolumeclaims", admissionv1.Create, admissionv1.Update).In(admit.Validating),
	},
	Features: map[featuregate.Feature]featuregate.FeatureSpec{
		podLevelResources: {Default: true, PreRelease: featuregate.Beta},
	},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		if err := admit.NoConfig(data); err != nil {
			return admit.Handler{}, err
		}
		l := &limitRanger{ranges: newRanges(d), podLevel: d.Features.Enabled(podLevelResources)}
		return admit.Handler{Mutate: l.mutate, Validate: l.validate}, nil
	},
}

type limitRanger struct {
	ranges *ranges
	// podLevel is whether what a pod says as a whole counts.
	podLevel bool
}

func (l *limitRanger) mutate(ctx context.Context, r *admit.Request) error {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok || isTerminating(r) {
		return nil
	}
	limitRanges, err := l.ranges.of(ctx, r.Namespace)
	if err != nil {
		return err
	}
	for _, lr := range limitRanges {
		setDefaults(pod, lr)
	}
	return nil
}

// validate denies with all that is wrong by the first LimitRange by which
// something is.
func (l *limitRanger) validate(ctx context.Context, r *admit.Request) error {
	var check func(corev1.LimitRangeItem) []error
	switch obj := r.Object.(type) {
	case *corev1.Pod:
		check = func(item corev1.LimitRangeItem) []error { return l.checkPod(item, obj) }
	case *corev1.PersistentVolumeClaim:
		check = func(item corev1.LimitRangeItem) []error { return checkClaim(item, obj) }
	}
	if check == nil || isTerminating(r) {
		return nil
	}
	limitRanges, err := l.ranges.of(ctx, r.Namespace)
	if err != nil {
		return err
	}
	for _, lr := range limitRanges {
		var errs []error
		for _, item := range lr.Spec.Limits {
			errs = append(errs, check(item)...)
		}
		if len(errs) > 0 {
			return admit.Forbidden(r, utilerrors.NewAggregate(errs))
		}
	}
	return nil
}

// isTerminating reports whether the object was marked for deletion before the
// request: what then still changes is finalizers, which limits must not stop.
func isTerminating(r *admit.Request) bool {
	old, err := meta.Accessor(r.OldObject)
	return err == nil && old.GetDeletionTimestamp() != nil
}

// setDefaults fills in what containers do not say, and what was filled in into an
// annotation. Ephemeral containers have no resources.
//
// Upstream: the annotation is the last LimitRange's that filled in something.
func setDefaults(pod *corev1.Pod, lr *corev1.LimitRange) {
	defaults := defaultsOf(lr)
	var set []string
	// Not in the order of EachContainer: the annotation has the containers first.
	for _, kind := range []admit.ContainerKind{admit.Containers, admit.InitContainers} {
		for c := range admit.EachContainer(&pod.Spec, kind) {
			limits := fill(&c.Resources.Limits, defaults.Limits)
			requests := fill(&c.Resources.Requests, defaults.Requests)
			set = append(set, describe(requests, "request", c)...)
			set = append(set, describe(limits, "limit", c)...)
		}
	}
	if len(set) == 0 {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[annotation] = "LimitRanger plugin set: " + strings.Join(set, "; ")
}

// defaultsOf returns the defaults for containers. Of two items that have one for
// the same resource the later one counts.
func defaultsOf(lr *corev1.LimitRange) corev1.ResourceRequirements {
	out := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, item := range lr.Spec.Limits {
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		maps.Copy(out.Requests, item.DefaultRequest)
		maps.Copy(out.Limits, item.Default)
	}
	return out
}

// fill adds the defaults that a list lacks and returns their names. The LimitRange
// is shared, so quantities are copied.
func fill(list *corev1.ResourceList, defaults corev1.ResourceList) []string {
	var set []string
	for name, q := range defaults {
		if _, ok := (*list)[name]; ok {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = q.DeepCopy()
		set = append(set, string(name))
	}
	slices.Sort(set)
	return set
}

// describe returns the annotation's part about one container, if there is one.
func describe(names []string, what string, c admit.Container) []string {
	if len(names) == 0 {
		return nil
	}
	kind := "container"
	if c.Kind == admit.InitContainers {
		kind = "init container"
	}
	return []string{fmt.Sprintf("%s %s for %s %s", strings.Join(names, ", "), what, kind, c.Name)}
}
