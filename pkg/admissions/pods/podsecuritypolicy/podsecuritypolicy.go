// Package podsecuritypolicy admits a pod only if it satisfies a PodSecurityPolicy that its creator or its service
// account may use, and sets the defaults of that policy. See README.md.
package podsecuritypolicy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/postern-dev/postern/pkg/admissions/pods/podsecuritypolicy/internal/strategies"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
)

const (
	// annotation names the policy that admitted a pod.
	annotation = "kubernetes.io/psp"
	// ephemeral is the subresource of pods that adds ephemeral containers.
	ephemeral = "ephemeralcontainers"
)

// Plugin is PodSecurityPolicy.
//
// Upstream: plugin/pkg/admission/security/podsecuritypolicy in Kubernetes 1.24.
var Plugin = &admit.Plugin{
	Name: "PodSecurityPolicy",
	Rules: []admit.Rule{
		admit.On("pods", admissionv1.Create).In(admit.Mutating),
		admit.On("pods", admissionv1.Create, admissionv1.Update).In(admit.Validating),
		admit.On(policyv1.Resource, admissionv1.Create, admissionv1.Update).Of(policyv1.GroupName).In(admit.Validating).
			If(admit.CELStrings(strategies.Annotations()) + ".exists(a, a in " + admit.CELValue("object.metadata.annotations", "{}") + ")"),
	},
	Configurable: true,
	Access:       access.Rules{access.Lookup("policy.postern.dev", "podsecuritypolicies"), access.Review()},
	New:          newHandler,
}

func newHandler(d admit.Deps, data []byte) (admit.Handler, error) {
	c, err := load(data)
	if err != nil {
		return admit.Handler{}, err
	}
	known, err := newPolicies(d)
	if err != nil {
		return admit.Handler{}, err
	}
	p := &plugin{policies: known, authorize: d.Authorize, groups: c.groups(), appArmorFields: c.AppArmorFields}
	h := admit.Handler{Mutate: p.mutate, Validate: p.validate}
	if c.CheckEphemeralContainers {
		h.Rules = []admit.Rule{admit.On("pods/"+ephemeral, admissionv1.Update)}
	}
	return h, nil
}

type plugin struct {
	policies  *policies
	authorize admit.AuthorizeFunc
	// groups are the API groups in which users may have the permission to use a policy.
	groups []string
	// appArmorFields sets a default AppArmor profile as a field too.
	appArmorFields bool
}

// mutate sets the defaults of the chosen policy in a new pod, or in new ephemeral containers.
func (p *plugin) mutate(ctx context.Context, r *admit.Request) error {
	pod, err := podOf(r)
	if err != nil {
		return err
	}
	items, err := p.policies.cached()
	if err != nil {
		return err
	}
	// One copy has the defaults of the first policy that would admit the pod, and two are made for the policy that is tried.
	end, err := admit.Hold(ctx, 3*r.CopyMemory())
	if err != nil {
		return err
	}
	defer end()
	s := search{uses: p.usesOf(r, pod), store: all}
	if r.SubResource == ephemeral {
		old, _ := r.OldObject.(*corev1.Pod)
		s.hint, s.store = pod.Annotations[annotation], newEphemeral(old)
	} else {
		strategies.SyncSeccomp(pod)
		s.byName = strategies.LacksSeccompAnnotation(pod)
	}
	got, err := s.run(ctx, items, pod)
	switch {
	case err != nil:
		return err
	case got.unusable:
		return admit.Forbidden(r, errNoProviders)
	case got.policy == nil:
		return admit.Forbidden(r, denial("admit", got))
	}
	if p.appArmorFields {
		strategies.AddAppArmorFields(pod, got.pod)
	}
	*pod = *got.pod
	if r.SubResource == "" {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[annotation] = got.policy.Name
	}
	r.Audit("admit-policy", got.policy.Name)
	return nil
}

// validate denies a pod that satisfies no policy as it is. It tries the policy that the annotation names first.
func (p *plugin) validate(ctx context.Context, r *admit.Request) error {
	if r.Resource.Resource == policyv1.Resource {
		return validatePolicy(r)
	}
	pod, err := podOf(r)
	if err != nil {
		return err
	}
	if r.Operation == admissionv1.Update && isCollected(pod, r) {
		return nil
	}
	items, err := p.policies.cached()
	if err != nil {
		return err
	}
	end, err := admit.Hold(ctx, r.CopyMemory())
	if err != nil {
		return err
	}
	defer end()
	s := search{uses: p.usesOf(r, pod), hint: pod.Annotations[annotation], store: none}
	got, err := s.run(ctx, items, pod)
	if err != nil {
		return err
	}
	if got.policy != nil {
		if got, err = p.confirm(ctx, s, pod, got); err != nil {
			return err
		}
	}
	switch {
	case got.unusable:
		return admit.Forbidden(r, errNoProviders)
	case got.policy == nil:
		return admit.Forbidden(r, denial("validate", got))
	}
	r.Audit("validate-policy", got.policy.Name)
	return nil
}

// confirm checks in the API server that the policy that admits the pod is unchanged, because the cache may lag behind a
// restricted or deleted policy. If the policy has changed, confirm searches the policies of the API server.
func (p *plugin) confirm(ctx context.Context, s search, pod *corev1.Pod, got result) (result, error) {
	current, err := p.policies.isCurrent(ctx, got.policy)
	if err != nil || current {
		return got, err
	}
	items, err := p.policies.list(ctx)
	if err != nil {
		return result{}, err
	}
	return s.run(ctx, items, pod)
}

// denial returns kube-apiserver's words, and then the missing defaults, which kube-apiserver did not name.
func denial(verb string, got result) error {
	text := fmt.Sprintf("PodSecurityPolicy: unable to %s pod: %v", verb, texts(got.violations))
	return errors.New(strings.Join(append([]string{text}, got.lacking...), "; "))
}

// texts returns the violations in words, without those after strategies.MaxText bytes.
func texts(violations field.ErrorList) []string {
	var out []string
	size := 0
	for _, v := range violations {
		if size >= strategies.MaxText {
			break
		}
		text := v.Error()
		out, size = append(out, text), size+len(text)
	}
	return out
}

func podOf(r *admit.Request) (*corev1.Pod, error) {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok {
		return nil, admit.Forbidden(r, fmt.Errorf("unexpected type %T", r.Object))
	}
	return pod, nil
}

// isCollected reports whether an update changes only fields that the garbage collector changes. Such an update gives
// nothing to a user who may already update and delete the pod.
func isCollected(pod *corev1.Pod, r *admit.Request) bool {
	old, ok := r.OldObject.(*corev1.Pod)
	if !ok {
		return false
	}
	same := *pod
	same.OwnerReferences, same.Finalizers, same.ManagedFields = old.OwnerReferences, old.Finalizers, old.ManagedFields
	return apiequality.Semantic.DeepEqual(&same, old)
}

// validatePolicy denies a policy with annotations that are not valid profiles. The schema of a CustomResourceDefinition
// cannot restrict annotations.
func validatePolicy(r *admit.Request) error {
	u, ok := r.Object.(*unstructured.Unstructured)
	if !ok {
		return admit.Forbidden(r, fmt.Errorf("unexpected type %T", r.Object))
	}
	errs := strategies.CheckAnnotations(u.GetAnnotations(), field.NewPath("metadata", "annotations"))
	if len(errs) == 0 {
		return nil
	}
	return admit.Deny(apierrors.NewInvalid(u.GroupVersionKind().GroupKind(), u.GetName(), errs))
}
