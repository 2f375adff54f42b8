package dispatch

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	kjson "sigs.k8s.io/json"

	"github.com/postern-dev/postern/internal/defaults"
	"github.com/postern-dev/postern/internal/exclusions"
	"github.com/postern-dev/postern/internal/objects"
	"github.com/postern-dev/postern/pkg/router"
)

// run decides one request.
type run struct {
	*Dispatcher

	request  *admissionv1.AdmissionRequest
	decision *Decision
	// object is the decoded object of the request. It is nil if there is none, or without defaults if it does not decode.
	object  runtime.Object
	invoked invocations
}

func (d *Dispatcher) newRun(ar *admissionv1.AdmissionRequest) (*run, error) {
	r := &run{Dispatcher: d, request: complete(ar), decision: &Decision{}}
	object, err := objects.Decode(r.request.Object.Raw, ar.Kind)
	if !d.options.Defaults {
		r.object = object
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the object: %w", err)
	}
	old, err := objects.Decode(r.request.OldObject.Raw, ar.Kind)
	if err != nil {
		return nil, fmt.Errorf("the old object: %w", err)
	}
	r.object = object
	if err := r.receive(object, old); err != nil {
		return nil, err
	}
	return r, errors.Join(r.setDefaults(&r.request.Object, object), r.setDefaults(&r.request.OldObject, old))
}

// receive checks the kinds of the objects, and gives a new object the namespace of the request, without what only the API server sets.
//
// Upstream: rest.WipeObjectMetaSystemFields and rest.EnsureObjectNamespaceMatchesRequestNamespace.
func (r *run) receive(object, old runtime.Object) error {
	kind := schema.GroupVersionKind(r.request.Kind)
	for _, o := range []runtime.Object{object, old} {
		if o != nil && isOfOtherKind(o, kind) {
			return fmt.Errorf("an object is of the kind %s, and the request of %s", o.GetObjectKind().GroupVersionKind(), kind)
		}
	}
	if r.request.Operation != admissionv1.Create || r.request.SubResource != "" {
		return nil
	}
	m, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	m.SetUID("")
	m.SetCreationTimestamp(metav1.Time{})
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	m.SetSelfLink("")
	switch own := m.GetNamespace(); {
	case isNamespace(r.request) || own == r.request.Namespace:
	case own == "":
		m.SetNamespace(r.request.Namespace)
	default:
		return errors.New("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// setDefaults sets the defaults of an object, and makes it that of the request.
func (r *run) setDefaults(of *runtime.RawExtension, object runtime.Object) error {
	if object == nil {
		return nil
	}
	if _, custom := object.(*unstructured.Unstructured); !custom {
		object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind(r.request.Kind))
		defaults.Set(object)
	}
	var err error
	of.Raw, err = json.Marshal(object)
	return err
}

// mutate calls the mutating webhooks, or again those that must be called again.
func (r *run) mutate(ctx context.Context, again bool) {
	var called []*hook
	for _, h := range r.mutating {
		if ctx.Err() != nil {
			return
		}
		m := r.match(ctx, h, called)
		status := m.status
		if m.matches {
			called = append(called, h)
		}
		if status == nil && m.matches && (!again || r.invoked.mustRepeat(h)) {
			var changed bool
			if changed, status = r.call(ctx, h, again, m.unknown); changed {
				r.invoked.change()
			}
			r.invoked.add(h)
		}
		if status != nil {
			r.decision.Status = status
			return
		}
	}
}

// validate calls the validating webhooks. The API server matches all of them before it calls the first one.
func (r *run) validate(ctx context.Context) {
	var called []*hook
	var unknown [][]string
	for _, h := range r.validating {
		m := r.match(ctx, h, called)
		if m.status != nil {
			r.decision.Status = m.status
			return
		}
		if m.matches {
			called, unknown = append(called, h), append(unknown, m.unknown)
		}
	}
	for i, h := range called {
		if ctx.Err() != nil {
			return
		}
		if _, status := r.call(ctx, h, false, unknown[i]); r.decision.Status == nil {
			r.decision.Status = status
		}
	}
}

// name names the object as the API server does between the phases, and a request that has no name after its object.
func (r *run) name() error {
	if r.request.Operation != admissionv1.Create || r.request.Name != "" {
		return nil
	}
	metadata := metadataOf(r.request, r.request.Object)
	if metadata == nil {
		return nil
	}
	if r.request.Name = metadata.Name; metadata.Name != "" || metadata.GenerateName == "" || r.options.GenerateName == nil || r.request.SubResource != "" {
		return nil
	}
	r.request.Name = r.options.GenerateName(metadata.GenerateName)
	patch, err := json.Marshal([]any{map[string]string{"op": "add", "path": "/metadata/name", "value": r.request.Name}})
	if err != nil {
		return err
	}
	r.request.Object.Raw, err = Apply(r.request.Object.Raw, patch)
	return err
}

// match is whether the API server calls a webhook, as far as the Dispatcher knows.
type match struct {
	matches bool
	// unknown says why the API server may not call a webhook that matches.
	unknown []string
	// status is the answer to the request if the API server cannot say whether it calls the webhook.
	status *metav1.Status
}

// match matches a webhook with the request. Called are the earlier webhooks that match.
func (r *run) match(ctx context.Context, h *hook, called []*hook) match {
	if !h.object.Empty() && !r.selects(h.object) {
		return match{}
	}
	addressed, other := h.addresses(r.request)
	if !addressed {
		return match{}
	}
	selected := r.matchNamespace(ctx, h)
	// The API server may not serve the other version, and then it does not look for the namespace.
	if !other.Empty() && (selected.matches || selected.status != nil) {
		r.addUnknown(h, true, fmt.Sprintf("only an API server converts %s to %s", schema.GroupVersionResource(r.request.Resource).GroupVersion(), other.GroupVersion()))
		return match{}
	}
	if !selected.matches || len(h.MatchConditions) == 0 {
		return selected
	}
	if r.options.Conditions == nil {
		out := r.matchKnown(h, called)
		out.unknown = append(out.unknown, selected.unknown...)
		return out
	}
	met, err := r.options.Conditions(ctx, &h.Webhook, r.request)
	if err != nil && h.FailurePolicy != admissionregistrationv1.Ignore {
		resource := schema.GroupResource{Group: r.request.Resource.Group, Resource: r.request.Resource.Resource}
		return match{status: &apierrors.NewForbidden(resource, r.request.Name, err).ErrStatus}
	}
	selected.matches = met && err == nil
	return selected
}

// selects reports whether an objectSelector selects the object or the old object.
func (r *run) selects(s labels.Selector) bool {
	for _, o := range []runtime.RawExtension{r.request.Object, r.request.OldObject} {
		if m := metadataOf(r.request, o); m != nil && s.Matches(labels.Set(m.Labels)) {
			return true
		}
	}
	return false
}

// matchNamespace matches the namespaceSelector of a webhook with the namespace of the request.
func (r *run) matchNamespace(ctx context.Context, h *hook) match {
	ar := r.request
	if h.namespaces.Empty() || ar.Namespace == "" && !isNamespace(ar) {
		return match{matches: true}
	}
	if isNamespace(ar) && ar.SubResource == "" && (ar.Operation == admissionv1.Create || ar.Operation == admissionv1.Update) {
		m := metadataOf(ar, ar.Object)
		return match{matches: m != nil && h.namespaces.Matches(labels.Set(m.Labels))}
	}
	if r.options.NamespaceLabels == nil {
		return match{matches: true, unknown: []string{fmt.Sprintf("the labels of the namespace %s are not known", ar.Namespace)}}
	}
	found, err := r.options.NamespaceLabels(ctx, ar.Namespace)
	if err == nil {
		return match{matches: h.namespaces.Matches(found)}
	}
	var is apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &is) {
		is = apierrors.NewInternalError(err)
	}
	status := is.Status()
	return match{status: &status}
}

// matchKnown matches the match conditions that are known without CEL.
func (r *run) matchKnown(h *hook, called []*hook) match {
	out := match{matches: true}
	for _, c := range h.MatchConditions {
		met, known := exclusions.Evaluate(c, r.request)
		switch {
		case known && !met:
			return match{}
		case known, c.Name == router.SomethingToDo:
		case c.Name == router.NotCalledAlready:
			if slices.ContainsFunc(called, func(earlier *hook) bool { return earlier.Service == h.Service }) {
				return match{}
			}
		default:
			out.unknown = append(out.unknown, fmt.Sprintf("the match condition %s is not evaluated", c.Name))
		}
	}
	return out
}

// addUnknown adds to what is not known, once for each webhook.
func (r *run) addUnknown(h *hook, skipped bool, reasons ...string) {
	for _, reason := range reasons {
		if u := (Unknown{&h.Webhook, skipped, reason}); !slices.Contains(r.decision.Unknown, u) {
			r.decision.Unknown = append(r.decision.Unknown, u)
		}
	}
}

// call calls a webhook, and applies its patch. A status is the answer to the request.
func (r *run) call(ctx context.Context, h *hook, again bool, unknown []string) (changed bool, status *metav1.Status) {
	r.addUnknown(h, false, unknown...)
	if *r.request.DryRun && (h.sideEffects == admissionregistrationv1.SideEffectClassSome || h.sideEffects == admissionregistrationv1.SideEffectClassUnknown) {
		return false, &webhookerrors.NewDryRunUnsupportedErr(h.Name).ErrStatus
	}
	c := Call{Webhook: &h.Webhook, Again: again}
	defer func() {
		c.Changed = changed
		r.decision.Calls = append(r.decision.Calls, c)
	}()
	resp, err := r.send(ctx, h)
	if err == nil {
		c.Response = resp
		if !resp.Allowed {
			return false, &webhookerrors.ToStatusErr(h.Name, resp.Result.DeepCopy()).ErrStatus
		}
		if changed, err = r.patch(h, resp.Patch); err == nil {
			return changed, nil
		}
	}
	var failure *router.Failure
	if !errors.As(err, &failure) {
		// An object without its changes must not pass, whatever the failure policy is.
		return false, &apierrors.NewInternalError(err).ErrStatus
	}
	c.Failure = failure
	if h.hasOther && r.options.Conditions == nil {
		r.addUnknown(h, false, "the failure policy depends on a match condition that is not evaluated")
	}
	if h.FailurePolicy == admissionregistrationv1.Ignore {
		return false, nil
	}
	return false, &apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: %w", h.Name, failure)).ErrStatus
}

// send sends the request to the service of a webhook.
func (r *run) send(ctx context.Context, h *hook) (*admissionv1.AdmissionResponse, error) {
	if *r.request.DryRun && h.sideEffects == "" {
		return nil, &router.Failure{Code: http.StatusInternalServerError, Cause: "Webhook SideEffects is nil"}
	}
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	sent := *r.request
	if sent.UID == "" {
		sent.UID = uuid.NewUUID() // Each call has its own.
	}
	resp, err := h.service.Call(ctx, h.Phase, &sent)
	if ctx.Err() != nil {
		return nil, &router.Failure{Code: http.StatusGatewayTimeout, Cause: ctx.Err().Error()} // The API server does not wait.
	}
	return resp, err
}

// patch applies the patch of a webhook to the object. It reports whether the object changed.
func (r *run) patch(h *hook, patch []byte) (bool, error) {
	if len(patch) == 0 {
		return false, nil
	}
	operations, err := decodePatch(patch)
	if err != nil || len(operations) == 0 {
		return false, err
	}
	if len(r.request.Object.Raw) == 0 {
		return false, fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", h.Name)
	}
	patched, err := operations.Apply(r.request.Object.Raw)
	if err != nil {
		return false, err
	}
	if r.object == nil {
		changed := !isSame(r.request.Object.Raw, patched)
		r.request.Object.Raw = patched
		return changed, nil
	}
	before := r.object
	if r.object, err = objects.Decode(patched, r.request.Kind); err != nil {
		return false, cmp.Or(errors.Unwrap(err), err) // The answer of the API server does not repeat the kind.
	}
	if kind := schema.GroupVersionKind(r.request.Kind); isOfOtherKind(r.object, kind) {
		return false, fmt.Errorf("no conversion from %s to %s", r.object.GetObjectKind().GroupVersionKind(), kind)
	}
	changed := !apiequality.Semantic.DeepEqual(before, r.object)
	r.request.Object.Raw = patched
	if !r.options.Defaults {
		return changed, nil
	}
	return changed, r.setDefaults(&r.request.Object, r.object)
}

// Apply applies a JSON patch to an object as the API server does. Its error is a *router.Failure if the patch is not a JSON patch.
func Apply(object, patch []byte) ([]byte, error) {
	operations, err := decodePatch(patch)
	if err != nil {
		return nil, err
	}
	return operations.Apply(object)
}

func decodePatch(patch []byte) (jsonpatch.Patch, error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, &router.Failure{Code: http.StatusServiceUnavailable, Cause: "received undecodable patch in webhook response: " + err.Error()}
	}
	return operations, nil
}

// isOfOtherKind reports whether an object is not of a kind. A typed object may leave its kind out.
func isOfOtherKind(o runtime.Object, kind schema.GroupVersionKind) bool {
	own := o.GetObjectKind().GroupVersionKind()
	_, custom := o.(*unstructured.Unstructured)
	return own != kind && (custom || own.Version != "" && own.Kind != "")
}

// isSame reports whether two documents have the same values.
func isSame(a, b []byte) bool {
	var x, y any
	return kjson.UnmarshalCaseSensitivePreserveInts(a, &x) == nil && kjson.UnmarshalCaseSensitivePreserveInts(b, &y) == nil && apiequality.Semantic.DeepEqual(x, y)
}
