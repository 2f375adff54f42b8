package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	kjson "sigs.k8s.io/json"

	"github.com/postern-dev/postern/internal/exclusions"
	"github.com/postern-dev/postern/internal/objects"
	"github.com/postern-dev/postern/pkg/router"
)

// run decides one request.
type run struct {
	*Dispatcher

	request  *admissionv1.AdmissionRequest
	decision *Decision
	// object is the decoded object of the request if there are defaults.
	object runtime.Object
	// mustReinvoke is true if a mutating webhook changed the object.
	mustReinvoke bool
}

func (d *Dispatcher) newRun(ar *admissionv1.AdmissionRequest) (*run, error) {
	r := &run{Dispatcher: d, request: complete(ar), decision: &Decision{}}
	if d.options.Default == nil {
		return r, nil
	}
	var err error
	if r.object, err = r.withDefaults(&r.request.Object); err != nil {
		return nil, fmt.Errorf("the object: %w", err)
	}
	if _, err = r.withDefaults(&r.request.OldObject); err != nil {
		return nil, fmt.Errorf("the old object: %w", err)
	}
	return r, nil
}

// withDefaults sets the defaults of an object, and returns it.
func (r *run) withDefaults(of *runtime.RawExtension) (runtime.Object, error) {
	object, err := objects.Decode(of.Raw, r.request.Kind)
	if err != nil || object == nil {
		return nil, err
	}
	return object, r.setObject(of, object)
}

// setObject makes an object with its defaults that of the request.
func (r *run) setObject(of *runtime.RawExtension, object runtime.Object) error {
	if object.GetObjectKind().GroupVersionKind().Empty() {
		object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind(r.request.Kind))
	}
	r.options.Default(object)
	raw, err := json.Marshal(object)
	*of = runtime.RawExtension{Raw: raw}
	return err
}

// mutate calls the mutating webhooks, or again those that must be called again.
func (r *run) mutate(ctx context.Context, known *reinvocations, again bool) {
	var called []*hook
	for _, h := range r.mutating {
		matches, status := r.matches(ctx, h, called)
		if status == nil && matches && (!again || known.again[h]) {
			called = append(called, h)
			var changed bool
			if changed, status = r.call(ctx, h, again); changed {
				known.changed()
				r.mustReinvoke = true
			}
			known.called(h)
		}
		if status != nil {
			r.decision.Status = status
			return
		}
	}
}

// validate calls the validating webhooks.
func (r *run) validate(ctx context.Context) {
	var called []*hook
	for _, h := range r.validating {
		matches, status := r.matches(ctx, h, called)
		if status != nil {
			r.decision.Status = status
			return
		}
		if matches {
			called = append(called, h)
		}
	}
	for _, h := range called {
		if _, status := r.call(ctx, h, false); r.decision.Status == nil {
			r.decision.Status = status
		}
	}
}

// generateName gives an object its generated name, as the API server does between the phases.
func (r *run) generateName() error {
	generate := r.options.GenerateName
	if generate == nil || r.request.Operation != admissionv1.Create || r.request.SubResource != "" {
		return nil
	}
	metadata := r.metadata(r.request.Object)
	if metadata == nil || metadata.Name != "" || metadata.GenerateName == "" {
		return nil
	}
	r.request.Name = generate(metadata.GenerateName)
	patch, err := json.Marshal([]any{map[string]string{"op": "add", "path": "/metadata/name", "value": r.request.Name}})
	if err != nil {
		return err
	}
	r.request.Object.Raw, err = Apply(r.request.Object.Raw, patch)
	return err
}

// matches reports whether the API server calls a webhook. Called are the webhooks that it has called for the same object. A status is
// the answer to the request.
func (r *run) matches(ctx context.Context, h *hook, called []*hook) (bool, *metav1.Status) {
	if !h.object.Empty() && !r.selects(h.object) {
		return false, nil
	}
	addressed, other := h.addresses(r.request)
	if !addressed {
		return false, nil
	}
	selected, status := r.isInSelected(ctx, h)
	if !selected || status != nil {
		return false, status
	}
	if !other.Empty() {
		r.unknown(h, true, "only an API server converts %s to %s", schema.GroupVersionResource(r.request.Resource).GroupVersion(), other.GroupVersion())
		return false, nil
	}
	if r.options.Conditions == nil {
		return r.meetsKnown(h, called), nil
	}
	met, err := r.options.Conditions(ctx, &h.Webhook, r.request)
	if err != nil && h.FailurePolicy == admissionregistrationv1.Fail {
		status := apierrors.NewForbidden(schema.GroupResource{Group: r.request.Resource.Group, Resource: r.request.Resource.Resource}, r.request.Name, err).ErrStatus
		return false, &status
	}
	return met && err == nil, nil
}

// selects reports whether an objectSelector selects the object or the old object.
func (r *run) selects(s labels.Selector) bool {
	for _, o := range []runtime.RawExtension{r.request.Object, r.request.OldObject} {
		if m := r.metadata(o); m != nil && s.Matches(labels.Set(m.Labels)) {
			return true
		}
	}
	return false
}

// metadata returns the metadata of an object, or nil if there is none, as in the options of a CONNECT.
func (r *run) metadata(of runtime.RawExtension) *metav1.ObjectMeta {
	var o struct {
		Metadata *metav1.ObjectMeta `json:"metadata"`
	}
	if len(of.Raw) == 0 || kjson.UnmarshalCaseSensitivePreserveInts(of.Raw, &o) != nil {
		return nil
	}
	return o.Metadata
}

// isInSelected reports whether the request is in a namespace that the namespaceSelector of a webhook selects.
func (r *run) isInSelected(ctx context.Context, h *hook) (bool, *metav1.Status) {
	ar := r.request
	isNamespace := ar.Resource.Resource == "namespaces"
	if h.namespaces.Empty() || ar.Namespace == "" && !isNamespace {
		return true, nil
	}
	if isNamespace && ar.SubResource == "" && (ar.Operation == admissionv1.Create || ar.Operation == admissionv1.Update) {
		m := r.metadata(ar.Object)
		return m != nil && h.namespaces.Matches(labels.Set(m.Labels)), nil
	}
	if r.options.NamespaceLabels == nil {
		r.unknown(h, false, "the labels of the namespace %s are not known", ar.Namespace)
		return true, nil
	}
	found, err := r.options.NamespaceLabels(ctx, ar.Namespace)
	if err == nil {
		return h.namespaces.Matches(found), nil
	}
	var is apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &is) {
		is = apierrors.NewInternalError(err)
	}
	status := is.Status()
	return false, &status
}

// meetsKnown evaluates the match conditions that are known.
func (r *run) meetsKnown(h *hook, called []*hook) bool {
	for _, c := range h.MatchConditions {
		met, known := exclusions.Evaluate(c, r.request)
		switch {
		case known && !met:
			return false
		case known, c.Name == router.SomethingToDo:
		case c.Name == router.NotCalledAlready:
			// The earlier webhook has called the same half.
			if slices.ContainsFunc(called, func(other *hook) bool { return other.service.Path == h.service.Path }) {
				return false
			}
		default:
			r.unknown(h, false, "the match condition %s is not evaluated", c.Name)
		}
	}
	return true
}

// unknown adds to what is not known, once for each webhook.
func (r *run) unknown(h *hook, skipped bool, format string, args ...any) {
	u := Unknown{&h.Webhook, skipped, fmt.Sprintf(format, args...)}
	if !slices.Contains(r.decision.Unknown, u) {
		r.decision.Unknown = append(r.decision.Unknown, u)
	}
}

// call calls a webhook, and applies its patch. A status is the answer to the request.
func (r *run) call(ctx context.Context, h *hook, again bool) (changed bool, status *metav1.Status) {
	if *r.request.DryRun {
		switch h.sideEffects {
		case admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun:
		default:
			return false, &webhookerrors.NewDryRunUnsupportedErr(h.Name).ErrStatus
		}
	}
	c := Call{Webhook: &h.Webhook, Again: again}
	defer func() {
		c.Changed = changed
		r.decision.Calls = append(r.decision.Calls, c)
	}()
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	sent := *r.request
	resp, err := h.service.Call(ctx, h.Phase, &sent)
	if err == nil {
		c.Response = resp
		if !resp.Allowed {
			return false, &webhookerrors.ToStatusErr(h.Name, resp.Result.DeepCopy()).ErrStatus
		}
		if changed, err = r.patch(resp.Patch); err == nil {
			return changed, nil
		}
	}
	var failure *router.Failure
	if !errors.As(err, &failure) {
		// An object without its changes must not pass, whatever the failure policy is.
		return false, &apierrors.NewInternalError(err).ErrStatus
	}
	c.Failure = failure
	if h.FailurePolicy == admissionregistrationv1.Ignore {
		return false, nil
	}
	return false, &apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: %w", h.Name, failure)).ErrStatus
}

// patch applies a patch to the object. It reports whether the object changed.
func (r *run) patch(patch []byte) (bool, error) {
	if len(patch) == 0 {
		return false, nil
	}
	if len(r.request.Object.Raw) == 0 {
		return false, errors.New("the webhook attempted to modify the object, which is not supported for this operation")
	}
	before := r.request.Object.Raw
	patched, err := Apply(before, patch)
	if err != nil {
		return false, err
	}
	if r.options.Default == nil {
		r.request.Object.Raw = patched
		return !isSame(before, patched), nil
	}
	object, err := objects.Decode(patched, r.request.Kind)
	if err != nil {
		return false, err
	}
	changed := !apiequality.Semantic.DeepEqual(r.object, object)
	r.object = object
	return changed, r.setObject(&r.request.Object, object)
}

// Apply applies a JSON patch to an object as the API server does. Its error is a *router.Failure if the patch is none.
func Apply(object, patch []byte) ([]byte, error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, &router.Failure{Code: http.StatusServiceUnavailable, Cause: "received undecodable patch in webhook response: " + err.Error()}
	}
	return operations.Apply(object)
}

// isSame reports whether two documents have the same values.
func isSame(a, b []byte) bool {
	var x, y any
	return kjson.UnmarshalCaseSensitivePreserveInts(a, &x) == nil && kjson.UnmarshalCaseSensitivePreserveInts(b, &y) == nil && apiequality.Semantic.DeepEqual(x, y)
}
