// Package podsecurity enforces the Pod Security Standards, with the library of kube-apiserver's own plugin. See
// README.md.
package podsecurity

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	componentmetrics "k8s.io/component-base/metrics"
	"k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// Plugin is PodSecurity.
//
// Upstream: plugin/pkg/admission/security/podsecurity, and the manifests of k8s.io/pod-security-admission.
var Plugin = &admit.Plugin{
	Name: "PodSecurity", Rules: rules(), Configurable: true, New: newHandler,
	Access: access.Rules{access.Lookup("", "namespaces"), access.To("", "pods", "list")},
}

func newHandler(d admit.Deps, data []byte) (admit.Handler, error) {
	configuration, defaultsOnly, err := loadConfig(data)
	if err != nil {
		return admit.Handler{}, err
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return admit.Handler{}, fmt.Errorf("making the evaluator: %w", err)
	}
	recorder, err := newRecorder(d.Metrics)
	if err != nil {
		return admit.Handler{}, err
	}
	namespaces := admission.NamespaceGetterFromListerAndClient(d.Informers.Core().V1().Namespaces().Lister(), d.Client)
	p := &plugin{Admission: &admission.Admission{
		Configuration: configuration, Evaluator: evaluator, Metrics: recorder, PodSpecExtractor: admission.DefaultPodSpecExtractor{},
		NamespaceGetter: namespaces, PodLister: newPodLister(d.Client),
	}}
	if defaultsOnly {
		p.inTree = &inTree{namespaces, evaluator}
		p.NamespaceGetter = defaulted{namespaces}
	}
	if err := p.CompleteConfiguration(); err != nil {
		return admit.Handler{}, fmt.Errorf("completing the configuration: %w", err)
	}
	if err := p.ValidateConfiguration(); err != nil {
		return admit.Handler{}, fmt.Errorf("validating the configuration: %w", err)
	}
	// The API server's own plugin evaluates the labels, and without the exemptions of this configuration.
	return admit.Handler{Validate: p.validate, Warnings: d.Redundant("PodSecurity", isPrivileged(configuration.Defaults))}, nil
}

// newRecorder returns the library's metrics. Versions that are newer than every check have the label "future", because
// a user chooses the version.
func newRecorder(registry componentmetrics.KubeRegistry) (metrics.Recorder, error) {
	newest := api.MajorMinorVersion(1, 0)
	for _, check := range policy.DefaultChecks() {
		for _, v := range check.Versions {
			if newest.Older(v.MinimumVersion) {
				newest = v.MinimumVersion
			}
		}
	}
	recorder := metrics.NewPrometheusRecorder(newest)
	var errs []error
	if registry != nil {
		recorder.MustRegister(func(all ...componentmetrics.Registerable) {
			for _, m := range all {
				errs = append(errs, registry.Register(m))
			}
		})
	}
	return recorder, errors.Join(errs...)
}

type plugin struct {
	*admission.Admission
	// inTree is nil unless the plugin evaluates only defaults.
	inTree *inTree
}

func (p *plugin) validate(ctx context.Context, r *admit.Request) error {
	attributes := attributesOf(r)
	if changesOnlyMetadata(r) || p.inTree != nil && !p.inTree.leaves(attributes, p.Configuration.Exemptions.Namespaces) {
		return nil
	}
	leaveOutUnchanged(attributes)
	// The library shares responses between requests, so they are read-only.
	resp := p.Validate(ctx, attributes)
	for key, value := range resp.AuditAnnotations {
		r.Audit(key, value)
	}
	if len(resp.Warnings) > 0 && (p.inTree == nil || !p.inTree.warns(ctx, attributes)) {
		for _, w := range resp.Warnings {
			r.Warn("%s", w)
		}
	}
	if resp.Allowed {
		return nil
	}
	err := admit.Deny(&apierrors.StatusError{ErrStatus: *resp.Result})
	if admit.IsDenial(err) {
		return err
	}
	return p.undecided(ctx, r, err)
}

// undecided returns the error for a pod whose namespace could not be looked up. The library does not tell why, so
// undecided asks again. A namespace that does not exist is a decision, as in kube-apiserver; any other error is a
// failure.
func (p *plugin) undecided(ctx context.Context, r *admit.Request, err error) error {
	_, why := p.NamespaceGetter.GetNamespace(ctx, r.Namespace)
	switch {
	case apierrors.IsNotFound(why):
		return admit.ForbiddenAs(r, err)
	case why != nil:
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}

func attributesOf(r *admit.Request) *api.AttributesRecord {
	return &api.AttributesRecord{
		Name: r.Name, Namespace: r.Namespace, Kind: schema.GroupVersionKind(r.Kind), Resource: schema.GroupVersionResource(r.Resource),
		Subresource: r.SubResource, Operation: r.Operation, Object: r.Object, OldObject: r.OldObject, Username: r.UserInfo.Username,
	}
}

// leaveOutUnchanged leaves ephemeral containers out of an update where the library decides the same without them. The library
// searches all old ones for each new one, which takes seconds for the tens of thousands that a pod may have.
func leaveOutUnchanged(a *api.AttributesRecord) {
	pod, ok := a.Object.(*corev1.Pod)
	old, wasPod := a.OldObject.(*corev1.Pod)
	if !ok || !wasPod {
		return
	}
	images := map[string]string{}
	for _, c := range slices.Backward(old.Spec.EphemeralContainers) {
		images[c.Name] = c.Image // the first of a name counts
	}
	changed := func(c corev1.EphemeralContainer) bool {
		image, existed := images[c.Name]
		return !existed || image != c.Image
	}
	sameImage := func(a, b corev1.Container) bool { return a.Image == b.Image }
	switch {
	case slices.ContainsFunc(pod.Spec.EphemeralContainers, changed):
		without := *old
		without.Spec.EphemeralContainers = nil // the first ephemeral container of the pod counts as a new one
		a.OldObject = &without
	case slices.EqualFunc(pod.Spec.Containers, old.Spec.Containers, sameImage) && slices.EqualFunc(pod.Spec.InitContainers, old.Spec.InitContainers, sameImage):
		without := *pod
		without.Spec.EphemeralContainers = nil // nothing is evaluated
		a.Object = &without
	}
}

// changesOnlyMetadata reports whether the match condition is false for the request.
func changesOnlyMetadata(r *admit.Request) bool {
	pod, ok := r.Object.(*corev1.Pod)
	old, wasPod := r.OldObject.(*corev1.Pod)
	return r.Operation == admissionv1.Update && ok && wasPod && len(pod.Spec.Containers) > 0 &&
		apiequality.Semantic.DeepEqual(pod.Spec, old.Spec) && !apiequality.Semantic.DeepEqual(pod.ObjectMeta, old.ObjectMeta)
}
