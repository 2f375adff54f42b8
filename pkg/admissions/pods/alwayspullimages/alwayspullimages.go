// Package alwayspullimages makes every container pull its image anew, so that a
// private image is only run by those who may pull it. See README.md.
package alwayspullimages

import (
	"context"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// Plugin is AlwaysPullImages.
//
// Upstream: plugin/pkg/admission/alwayspullimages.
var Plugin = &admit.Plugin{
	Name:  "AlwaysPullImages",
	Rules: []admit.Rule{admit.On("pods", admissionv1.Create, admissionv1.Update).If(noPod() + " || (" + lax() + ") && (" + newImage() + ")")},
	New: func(_ admit.Deps, data []byte) (admit.Handler, error) {
		c, err := admit.LoadConfig[config](data)
		if err != nil {
			return admit.Handler{}, err
		}
		h := admit.Handler{Mutate: admit.Typed(mutate), Validate: admit.Typed(validate)}
		if c.IncludeEphemeralContainers {
			h.Rules = []admit.Rule{admit.On("pods/ephemeralcontainers", admissionv1.Update).If(noPod() + " || " + lax())}
		}
		return h, nil
	},
}

// noPod is the CEL for an object that has no containers, of which the others
// could say nothing.
func noPod() string { return "size(" + admit.CELList("object.spec.containers") + ") == 0" }

// lax is the CEL for a pod in which something that has an image does not pull it
// always.
func lax() string {
	var terms []string
	for _, list := range containerLists() {
		terms = append(terms, admit.CELList("object.spec."+list)+".exists(c, !has(c.imagePullPolicy) || c.imagePullPolicy != 'Always')")
	}
	terms = append(terms, admit.CELList("object.spec.volumes")+".exists(v, has(v.image) && v.image != null && (!has(v.image.pullPolicy) || v.image.pullPolicy != 'Always'))")
	return strings.Join(terms, " || ")
}

// newImage is the CEL for a request that is no update, or in which the images do
// not stand where they stood. Equal lists are cheaper than equal sets, and only
// err towards a call.
func newImage() string {
	terms := []string{"request.operation != 'UPDATE'"}
	for _, list := range containerLists() {
		images := func(object string) string {
			return admit.CELList(object+".spec."+list) + ".map(c, has(c.image) ? c.image : '')"
		}
		terms = append(terms, images("object")+" != "+images("oldObject"))
	}
	return strings.Join(terms, " || ")
}

func containerLists() []string {
	return []string{"initContainers", "containers", "ephemeralContainers"}
}

func mutate(_ context.Context, r *admit.Request, pod, old *corev1.Pod) error {
	for _, p := range pullPolicies(r, pod, old) {
		*p.policy = corev1.PullAlways
	}
	return nil
}

// validate exists because a webhook that runs after us may set a policy back.
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
	return admit.ForbiddenAs(r, utilerrors.NewAggregate(errs))
}

// pullPolicy is one policy in a pod.
type pullPolicy struct {
	policy *corev1.PullPolicy
	path   *field.Path
}

// pullPolicies returns the policies that have to be Always.
func pullPolicies(r *admit.Request, pod, old *corev1.Pod) []pullPolicy {
	if r.SubResource == "ephemeralcontainers" {
		return addedEphemeral(pod, old)
	}
	if r.Operation == admissionv1.Update && old != nil && usesOnlyImagesOf(pod, old) {
		return nil
	}
	var out []pullPolicy
	for c := range admit.EachContainer(&pod.Spec) {
		out = append(out, pullPolicy{&c.ImagePullPolicy, c.Path().Child("imagePullPolicy")})
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			out = append(out, pullPolicy{&image.PullPolicy, field.NewPath("spec", "volumes").Index(i).Child("image", "pullPolicy")})
		}
	}
	return out
}

// addedEphemeral leaves out the containers that were there before: nothing can
// change them any more.
func addedEphemeral(pod, old *corev1.Pod) []pullPolicy {
	before := sets.New[string]()
	if old != nil {
		for c := range admit.EachContainer(&old.Spec, admit.EphemeralContainers) {
			before.Insert(c.Name)
		}
	}
	var out []pullPolicy
	for c := range admit.EachContainer(&pod.Spec, admit.EphemeralContainers) {
		if !before.Has(c.Name) {
			out = append(out, pullPolicy{&c.ImagePullPolicy, c.Path().Child("imagePullPolicy")})
		}
	}
	return out
}

// usesOnlyImagesOf reports whether every image of pod is used somewhere in old:
// whoever made that pod was allowed to pull them.
func usesOnlyImagesOf(pod, old *corev1.Pod) bool {
	images := sets.New[string]()
	for c := range admit.EachContainer(&old.Spec) {
		images.Insert(c.Image)
	}
	for c := range admit.EachContainer(&pod.Spec) {
		if !images.Has(c.Image) {
			return false
		}
	}
	return true
}
