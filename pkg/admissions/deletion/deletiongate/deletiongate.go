// Package deletiongate refuses the deletion of pods until the cluster is ready for it. See README.md.
package deletiongate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/internal/authorization"
	"github.com/postern-dev/postern/internal/writes"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
	deletionv1alpha1 "github.com/postern-dev/postern/pkg/apis/deletion/v1alpha1"
)

// Plugin is DeletionGate. The handler returns the rules, because the configuration determines their conditions.
var Plugin = &admit.Plugin{
	Name:         "DeletionGate",
	SideEffects:  true, // The record of a pod, the preparation, and Events.
	Configurable: true,
	Access: access.Rules{
		access.To("", "pods", "get", "patch"), access.Lookup("", "namespaces"), access.To("", "nodes", "get"),
		access.To("", "events", "create", "patch"), access.Review(),
		access.To(deletionv1alpha1.GroupName, deletionv1alpha1.Resource, deletionv1alpha1.RecordVerb),
	},
	New: newHandler,
}

type plugin struct {
	gates  []*gate
	keeper *keeper
	allows admit.AuthorizeFunc
}

func newHandler(d admit.Deps, data []byte) (admit.Handler, error) {
	if len(data) == 0 {
		return admit.Handler{}, errors.New("it needs a configuration with its gates")
	}
	gates, err := load(data)
	if err != nil {
		return admit.Handler{}, err
	}
	k, err := newKeeper(d, gates)
	if err != nil {
		return admit.Handler{}, err
	}
	p := &plugin{gates: gates, keeper: k, allows: d.Authorize}
	pods := func(operations ...admissionv1.Operation) admit.Rule {
		return admit.On("pods", operations...).In(admit.Validating)
	}
	return admit.Handler{Validate: p.validate, Rules: []admit.Rule{
		pods(admissionv1.Delete).If(deleted(gates)),
		pods(admissionv1.Create).If(forgedAtCreation()),
		pods(admissionv1.Update).If(forged(gates)),
		admit.On("pods/eviction", admissionv1.Create).In(admit.Validating).If(evicted(gates)),
		admit.On("pods/status", admissionv1.Update).In(admit.Validating).If(forged(gates)),
		{
			Phase: admit.Validating, Resources: []string{"pods/binding", "bindings"},
			Operations: []admissionv1.Operation{admissionv1.Create}, Condition: forgedAtCreation(),
		},
	}}, nil
}

func (p *plugin) validate(ctx context.Context, r *admit.Request) error {
	switch {
	case r.SubResource == "eviction":
		return p.validateEviction(ctx, r)
	case r.Operation == admissionv1.Delete:
		return admit.Typed(p.validateDeletion)(ctx, r)
	}
	return p.validateChange(ctx, r)
}

// validateDeletion is called for each pod of a DELETE of a collection, too.
func (p *plugin) validateDeletion(ctx context.Context, r *admit.Request, _, pod *corev1.Pod) error {
	if pod == nil {
		return fmt.Errorf("the request has no pod, but %T", r.OldObject)
	}
	options := &metav1.DeleteOptions{}
	if err := decodeOptions(r, options); err != nil {
		return err
	}
	final := options.GracePeriodSeconds != nil && *options.GracePeriodSeconds == 0
	if final && r.UserInfo.Username == nodeUser+pod.Spec.NodeName || slices.Contains([]string{podCollector, namespaceController}, r.UserInfo.Username) {
		return nil
	}
	return p.decide(ctx, r, pod, asker{cause: deletionv1alpha1.Delete, user: r.UserInfo.Username}, r.IsDryRun())
}

// validateEviction reads the pod. A dry run may be requested in the Eviction alone, where the API server does not see it
// before admission.
func (p *plugin) validateEviction(ctx context.Context, r *admit.Request) error {
	var options *metav1.DeleteOptions
	switch e := r.Object.(type) {
	case *policyv1.Eviction:
		options = e.DeleteOptions
	case *policyv1beta1.Eviction:
		options = e.DeleteOptions
	default:
		return fmt.Errorf("the request has no Eviction, but %T", r.Object)
	}
	dryRun := r.IsDryRun() || options != nil && len(options.DryRun) > 0
	pod, err := get(ctx, p.keeper.client.Pods(r.Namespace), r.Name, "")
	switch {
	case errors.Is(err, errGone):
		return nil // The API server answers that the pod is not found.
	case err != nil:
		return err
	case options != nil && options.Preconditions != nil && options.Preconditions.UID != nil && *options.Preconditions.UID != pod.UID:
		return nil // The API server answers with a conflict.
	}
	return p.decide(ctx, r, pod, asker{cause: deletionv1alpha1.Evict, user: r.UserInfo.Username}, dryRun)
}

func (p *plugin) gatesOf(pod *corev1.Pod) []*gate {
	var out []*gate
	for _, g := range p.gates {
		if g.selects(pod) {
			out = append(out, g)
		}
	}
	return out
}

func (p *plugin) decide(ctx context.Context, r *admit.Request, pod *corev1.Pod, by asker, dryRun bool) error {
	gates := p.gatesOf(pod)
	if len(gates) == 0 || !holds(pod) {
		return nil
	}
	if dryRun {
		r.Warn("Deletion gates are not asked in a dry run: %s", namesOf(gates))
		return nil
	}
	if v, ok := p.keeper.expired(pod, gates); ok {
		p.keeper.reporter.letGo(pod, v.passes)
		return nil
	}
	gone, err := p.keeper.whereabouts.gone(ctx, pod)
	if err != nil {
		p.keeper.remember(pod)
	}
	if err != nil || gone {
		return err
	}
	v, err := p.keeper.ask(ctx, p.keeper.requests, pod, gates, by)
	switch {
	case errors.Is(err, errGone) && by.cause == deletionv1alpha1.Delete:
		return nil // The API server finds no pod with this UID.
	case err != nil:
		return refuse(r, pod, gates, "try again: "+err.Error(), by)
	case len(v.waits) == 0:
		p.keeper.reporter.letGo(pod, v.passes)
		return nil
	}
	if v.unwritten == nil || errors.Is(v.unwritten, writes.ErrBusy) || len(recordOf(pod)) > 0 {
		p.keeper.watch(pod, gates)
	}
	p.keeper.reporter.refused(pod, v)
	return refuse(r, pod, gates, v.text(), by)
}

// refuse denies a request with code 429. Clients of client-go wait for Retry-After and repeat the request by themselves,
// up to ten times. This would block a worker of a controller for minutes, so service accounts that delete get none, like the
// control plane from the router: controllers repeat failed deletions with a backoff, and earlier if the pod changes.
func refuse(r *admit.Request, pod *corev1.Pod, gates []*gate, why string, by asker) error {
	seconds := retryAfter(gates)
	if by.cause == deletionv1alpha1.Delete && slices.Contains(r.UserInfo.Groups, "system:serviceaccounts") {
		seconds = 0
	}
	refusal := apierrors.NewTooManyRequests(fmt.Sprintf("pods %q may not be deleted yet: %s", pod.Name, why), seconds)
	refusal.ErrStatus.Details.Kind, refusal.ErrStatus.Details.Name, refusal.ErrStatus.Details.UID = "pods", pod.Name, pod.UID
	return admit.Deny(refusal)
}

// validateChange denies changes that take a permission, by users who do not have it. Otherwise whoever may edit a pod could
// forge its record, release it, or take it out of its gate.
func (p *plugin) validateChange(ctx context.Context, r *admit.Request) error {
	obj, err := meta.Accessor(r.Object)
	if err != nil {
		return fmt.Errorf("reading the object: %w", err)
	}
	var old map[string]string
	before, hasOld := r.OldObject.(*corev1.Pod)
	if hasOld {
		old = before.Annotations
	}
	if annotations := obj.GetAnnotations(); annotations[deletionv1alpha1.WaitingAnnotation] != old[deletionv1alpha1.WaitingAnnotation] {
		what := "the annotation " + deletionv1alpha1.WaitingAnnotation + " belongs to Postern"
		if err := p.require(ctx, r, deletionv1alpha1.RecordVerb, what); err != nil {
			return err
		}
	}
	if obj.GetAnnotations()[deletionv1alpha1.ReleaseAnnotation] != old[deletionv1alpha1.ReleaseAnnotation] {
		return p.require(ctx, r, deletionv1alpha1.ReleaseVerb, "the annotation "+deletionv1alpha1.ReleaseAnnotation+" opens the deletion gates of a pod")
	}
	after, isPod := r.Object.(*corev1.Pod)
	if !isPod || !hasOld || !guards(before) {
		return nil
	}
	for _, g := range p.gatesOf(before) {
		what := ""
		switch {
		case !g.selects(after):
			what = fmt.Sprintf("the change takes the pod out of the deletion gate %q", g.Name)
		case !equal(before.Spec.ActiveDeadlineSeconds, after.Spec.ActiveDeadlineSeconds):
			what = fmt.Sprintf("spec.activeDeadlineSeconds would end a pod with the deletion gate %q", g.Name)
		default:
			continue
		}
		return p.require(ctx, r, deletionv1alpha1.ReleaseVerb, what)
	}
	return nil
}

func equal(a, b *int64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// require denies the request unless the user has a permission for gates in the namespace.
func (p *plugin) require(ctx context.Context, r *admit.Request, verb, what string) error {
	d, err := p.allows(ctx, authorization.ReviewFor(r.UserInfo, &authorizationv1.ResourceAttributes{
		Namespace: r.Namespace, Verb: verb, Group: deletionv1alpha1.GroupName, Resource: deletionv1alpha1.Resource,
	}))
	switch {
	case err != nil:
		return err
	case d.Allowed:
		return nil
	}
	return admit.Forbidden(r, fmt.Errorf("%s: it takes the permission to %s %s.%s", what, verb, deletionv1alpha1.Resource, deletionv1alpha1.GroupName))
}
