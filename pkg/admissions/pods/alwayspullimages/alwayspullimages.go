// Package alwayspullimages sets the pull policy of every image in a pod to Always,
// so that only users with access to a private image can run it. See README.md.
package alwayspullimages

import (
	"context"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/pkg/admit"
)

// Plugin is AlwaysPullImages.
//
// Upstream: plugin/pkg/admission/alwayspullimages.
var Plugin = &admit.Plugin{
	Name: "AlwaysPullImages",
	Rules: []admit.Rule{
		// No condition: a webhook that is called later may inject a container.
		admit.On("pods", admissionv1.Create).In(admit.Mutating),
		admit.On("pods", admissionv1.Create).In(admit.Validating).If(podspec.WithoutContainers() + " || " + lax()),
		admit.On("pods", admissionv1.Update).If(podspec.WithoutContainers() + " || (" + lax() + ") && (" + newImage() + ")"),
	},
	Configurable: true,
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		c, err := admit.LoadConfig[config](data)
		if err != nil {
			return admit.Handler{}, err
		}
		h := admit.Handler{
			Mutate: admit.Typed(mutate), Validate: admit.Typed(validate),
			Warnings: d.Redundant("AlwaysPullImages", !c.IncludeEphemeralContainers),
		}
		if c.IncludeEphemeralContainers {
			h.Rules = []admit.Rule{admit.On("pods/ephemeralcontainers", admissionv1.Update).If(podspec.WithoutContainers() + " || " + lax())}
		}
		return h, nil
	},
}

// lax is the CEL for a pod in which a container or an image volume has a pull policy
// other than Always.
func lax() string {
	var terms []string
	for _, list := range podspec.ContainerKinds() {
		terms = append(terms, admit.CELAny(admit.CELList("object.spec."+string(list)), "c", "!has(c.imagePullPolicy) || c.imagePullPolicy != 'Always'"))
	}
	terms = append(terms, admit.CELAny(admit.CELList("object.spec.volumes"), "v",
		"has(v.image) && v.image != null && (!has(v.image.pullPolicy) || v.image.pullPolicy != 'Always')"))
	return strings.Join(terms, " || ")
}

// newImage is the CEL for an update that changes the list of images. It compares
// lists, because comparing sets costs more. The price is a call for an update that
// only reorders the images.
func newImage() string {
	var terms []string
	for _, list := range podspec.ContainerKinds() {
		terms = append(terms, admit.CELDiffer(admit.CELList("object.spec."+string(list)), admit.CELList("oldObject.spec."+string(list)), "c", "has(c.image) ? c.image : ''"))
	}
	return strings.Join(terms, " || ")
}

func mutate(_ context.Context, r *admit.Request, pod, old *corev1.Pod) error {
	for _, p := range pullPolicies(r, pod, old) {
		*p.policy = corev1.PullAlways
	}
	return nil
}

// validate is needed because a webhook that runs after Postern may set another
// policy.
func validate(_ context.Context, r *admit.Request, pod, old *corev1.Pod) error {
	var errs []error
	for _, p := range pullPolicies(r, pod, old) {
		if *p.policy != corev1.PullAlways {
			errs = append(errs, admit.Forbidden(r, field.NotSupported(p.path, *p.policy, []corev1.PullPolicy{corev1.PullAlways})))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return admit.ForbiddenAs(r, admit.Aggregate(errs))
}

// pullPolicy is the pull policy of one container or image volume.
type pullPolicy struct {
	policy *corev1.PullPolicy
	path   *field.Path
}

// pullPolicies returns the pull policies that the plugin enforces.
func pullPolicies(r *admit.Request, pod, old *corev1.Pod) []pullPolicy {
	if r.SubResource == "ephemeralcontainers" {
		return addedEphemeral(pod, old)
	}
	if r.Operation == admissionv1.Update && old != nil && usesOnlyImagesOf(pod, old) {
		return nil
	}
	var out []pullPolicy
	for c := range podspec.EachContainer(&pod.Spec) {
		out = append(out, pullPolicy{&c.ImagePullPolicy, c.Path().Child("imagePullPolicy")})
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			out = append(out, pullPolicy{&image.PullPolicy, field.NewPath("spec", "volumes").Index(i).Child("image", "pullPolicy")})
		}
	}
	return out
}

// addedEphemeral returns only the added ephemeral containers, because existing
// ephemeral containers are immutable.
func addedEphemeral(pod, old *corev1.Pod) []pullPolicy {
	before := sets.New[string]()
	if old != nil {
		for c := range podspec.EachContainer(&old.Spec, podspec.EphemeralContainers) {
			before.Insert(c.Name)
		}
	}
	var out []pullPolicy
	for c := range podspec.EachContainer(&pod.Spec, podspec.EphemeralContainers) {
		if !before.Has(c.Name) {
			out = append(out, pullPolicy{&c.ImagePullPolicy, c.Path().Child("imagePullPolicy")})
		}
	}
	return out
}

// usesOnlyImagesOf reports whether old uses every image of pod in some container.
// The creator of old was allowed to pull those images.
func usesOnlyImagesOf(pod, old *corev1.Pod) bool {
	images := sets.New[string]()
	for c := range podspec.EachContainer(&old.Spec) {
		images.Insert(c.Image)
	}
	for c := range podspec.EachContainer(&pod.Spec) {
		if !images.Has(c.Image) {
			return false
		}
	}
	return true
}
