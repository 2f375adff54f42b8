// Package limitranger sets the default resources of a namespace's LimitRanges in
// containers, and denies pods and claims that exceed the bounds. See README.md.
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
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// podLevelResources is the gate for resources that are set for a pod as a whole.
const podLevelResources featuregate.Feature = "PodLevelResources"

// annotation lists the defaults that the plugin set.
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
	Configurable: true,
	Access:       access.Rules{access.Watch("", "limitranges")},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		c, err := admit.LoadConfig[config](data)
		if err != nil {
			return admit.Handler{}, err
		}
		l := &limitRanger{ranges: newRanges(d), podLevel: d.Features.Enabled(podLevelResources)}
		if c.AdmitUnchangedClaims {
			l.admitsUnchanged = func() bool { return true }
		} else {
			v := newServerVersion(d)
			d.Go(v.run)
			l.admitsUnchanged = v.admitsUnchanged.Load
		}
		// The API server's own plugin denies also the claims that this one admits.
		return admit.Handler{Mutate: l.mutate, Validate: l.validate, Warnings: d.Redundant("LimitRanger", true)}, nil
	},
}

type limitRanger struct {
	ranges *ranges
	// podLevel is true if pod-level resources count.
	podLevel bool
	// admitsUnchanged reports whether an update of a claim may keep a request that is out of bounds.
	admitsUnchanged func() bool
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
	defaults := make([]corev1.ResourceRequirements, 0, len(limitRanges))
	for _, lr := range limitRanges {
		defaults = append(defaults, defaultsOf(lr))
	}
	g, err := growthOf(pod, defaults)
	if err != nil {
		return err
	}
	if err := r.Grow(ctx, g); err != nil {
		return err
	}
	for _, d := range defaults {
		setDefaults(pod, d)
	}
	return nil
}

// validate denies with all violations of the first LimitRange that is violated.
func (l *limitRanger) validate(ctx context.Context, r *admit.Request) error {
	var check func(corev1.LimitRangeItem) []error
	switch obj := r.Object.(type) {
	case *corev1.Pod:
		check = func(item corev1.LimitRangeItem) []error { return l.checkPod(item, obj) }
	case *corev1.PersistentVolumeClaim:
		kept := l.kept(r)
		check = func(item corev1.LimitRangeItem) []error { return checkClaim(item, obj, kept) }
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
			return admit.Forbidden(r, admit.Aggregate(errs))
		}
	}
	return nil
}

// kept returns the requests of the stored claim that the updated claim may have again without a check.
func (l *limitRanger) kept(r *admit.Request) corev1.ResourceList {
	old, ok := r.OldObject.(*corev1.PersistentVolumeClaim)
	if !ok || !l.admitsUnchanged() {
		return nil
	}
	return old.Spec.Resources.Requests
}

// isTerminating reports whether the object was marked for deletion before the
// request. Limits must not block the removal of its finalizers.
func isTerminating(r *admit.Request) bool {
	old, err := meta.Accessor(r.OldObject)
	return err == nil && old.GetDeletionTimestamp() != nil
}

// setDefaults sets the resources that containers lack, and lists them in an
// annotation. Ephemeral containers have no resources.
//
// Upstream: the annotation describes only the last LimitRange that set a default.
func setDefaults(pod *corev1.Pod, defaults corev1.ResourceRequirements) {
	var set []string
	// The annotation lists containers before init containers, unlike EachContainer.
	for _, kind := range []podspec.ContainerKind{podspec.Containers, podspec.InitContainers} {
		for c := range podspec.EachContainer(&pod.Spec, kind) {
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

// defaultsOf returns the defaults for containers. If two items have a default for
// the same resource, the later item wins.
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

// fill adds the defaults that a list lacks and returns their names. It copies the
// quantities, because all requests share the LimitRange.
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

// describe returns the annotation's part about one container, or nil if nothing was
// set.
func describe(names []string, what string, c podspec.Container) []string {
	if len(names) == 0 {
		return nil
	}
	kind := "container"
	if c.Kind == podspec.InitContainers {
		kind = "init container"
	}
	return []string{fmt.Sprintf("%s %s for %s %s", strings.Join(names, ", "), what, kind, c.Name)}
}
