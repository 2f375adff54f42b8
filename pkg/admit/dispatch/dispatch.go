// Package dispatch sends requests through the webhooks of services in this process, with the rules, the order and the patches of an
// API server: a request goes in, and the object with all changes and the answer of each webhook come out. It is for programs that ask
// what the webhooks would do with an object that nobody creates. What else an API server does with a request is left out: authorization, its own plugins and
// policies, validation, and what it sets in an object between the phases, such as the uid and the status.
//
// Upstream: k8s.io/apiserver/pkg/admission/plugin/webhook, its generic, mutating and validating dispatchers, and
// k8s.io/apiserver/pkg/admission NewReinvocationHandler.
package dispatch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	kjson "sigs.k8s.io/json"

	"github.com/postern-dev/postern/pkg/router"
)

// Options describe the API server. Services
// have state of their own, such as the objects in admit.Deps. The funcs are called from the goroutines that call Dispatch.
type Options struct {
	// Defaults is true for objects that no API server has decoded, such as those of manifests. A Dispatcher then sets the defaults of
	// kube-apiserver 1.37 before the first webhook and after each patch, and drops unknown fields, in all objects with a type of
	// k8s.io/api in a stable version. Without Defaults, it changes an object only by the patches.
	Defaults bool
	// Conditions reports whether all match conditions of a webhook are true for a request. Its error is that of a condition
	// that cannot be evaluated. Nil evaluates what registration.Deployment excludes, and no other CEL, because a library for it would
	// double the size of the program. Webhooks of families are then called although they may have nothing to do. For other conditions, see
	// Decision.Unknown.
	Conditions func(context.Context, *Webhook, *admissionv1.AdmissionRequest) (bool, error)
	// NamespaceLabels returns the labels of a namespace, for webhooks with a namespaceSelector. A NotFound error is the answer
	// to the request. Nil knows no namespace: see Decision.Unknown.
	NamespaceLabels func(ctx context.Context, name string) (labels.Set, error)
	// CallsForReviews is true for an API server before 1.37, which also calls webhooks for token and access reviews.
	CallsForReviews bool
	// GenerateName returns the name of an object with a metadata.generateName, which it gets between the two phases. Nil
	// generates no names.
	GenerateName func(base string) string
}

// Dispatcher calls the webhooks of services. It may be used from several goroutines.
type Dispatcher struct {
	options              Options
	mutating, validating []*hook
}

// New returns a Dispatcher for the webhooks of services, whose configurations are complete: see registration.Deployment.Registered.
// It returns an error for a selector or a time-out that an API server would refuse.
func New(services []router.AdmissionService, o Options) (*Dispatcher, error) {
	d := &Dispatcher{options: o}
	for _, s := range services {
		mutating, err := hooks(s, router.PhaseMutate)
		if err != nil {
			return nil, err
		}
		validating, err := hooks(s, router.PhaseValidate)
		if err != nil {
			return nil, err
		}
		d.mutating, d.validating = append(d.mutating, mutating...), append(d.validating, validating...)
	}
	// The API server calls webhooks in the order of the names of their configurations.
	slices.SortStableFunc(d.mutating, byConfiguration)
	slices.SortStableFunc(d.validating, byConfiguration)
	return d, nil
}

// Dispatch decides a request, which must have an operation, a kind, a resource, a name, a namespace, and the objects of its operation
// as JSON. Name and Namespace may be empty for the CREATE of an object that has them. The request may be for a subresource, such as the
// UPDATE of a pods/status or the CONNECT to a pods/exec, and may be a dry run. An error says that the API server refuses the
// request before admission, such as an object that does not decode, or that the context ended.
func (d *Dispatcher) Dispatch(ctx context.Context, ar *admissionv1.AdmissionRequest) (*Decision, error) {
	if err := check(ar); err != nil {
		return nil, err
	}
	r, err := d.newRun(ar)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(r.decide(ctx), ctx.Err()); err != nil {
		return nil, err
	}
	r.decision.Object = r.request.Object.Raw
	return r.decision, nil
}

// decide calls the webhooks of both phases.
func (r *run) decide(ctx context.Context) error {
	if r.isExempt(r.request) {
		return r.name()
	}
	if r.mutate(ctx, false); r.decision.Status == nil && r.invoked.changed {
		r.mutate(ctx, true)
	}
	if r.decision.Status != nil {
		return nil
	}
	if err := r.name(); err != nil {
		return fmt.Errorf("naming the object: %w", err)
	}
	r.validate(ctx)
	return nil
}

// check returns an error for a request whose objects are not those of its operation.
func check(ar *admissionv1.AdmissionRequest) error {
	object, old := len(ar.Object.Raw) > 0, len(ar.OldObject.Raw) > 0
	for _, raw := range [][]byte{ar.Object.Raw, ar.OldObject.Raw} {
		if len(raw) > 0 && !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
			return errors.New("an object is a JSON object")
		}
	}
	switch {
	case ar.Kind.Kind == "" || ar.Kind.Version == "" || ar.Resource.Resource == "" || ar.Resource.Version == "":
		return errors.New("a request has a kind and a resource, each with its version")
	case ar.Operation == admissionv1.Create || ar.Operation == admissionv1.Connect:
		if !object || old {
			return fmt.Errorf("a %s has an object and no old object", ar.Operation)
		}
	case ar.Operation == admissionv1.Update:
		if !object {
			return errors.New("an UPDATE has an object")
		}
	case ar.Operation == admissionv1.Delete:
		if object || !old {
			return errors.New("a DELETE has an old object and no object")
		}
	default:
		return fmt.Errorf("the operation %q is not CREATE, UPDATE, DELETE or CONNECT", ar.Operation)
	}
	return nil
}

// isExempt reports whether the API server calls no webhook for a request: for the configurations of webhooks and policies, so that
// they can be mended, and for reviews, which it needs to call webhooks.
//
// Upstream: k8s.io/kubernetes/pkg/kubeapiserver/admission/exclusion Excluded, for the reviews.
func (d *Dispatcher) isExempt(ar *admissionv1.AdmissionRequest) bool {
	if rules.IsExemptAdmissionConfigurationResource(attributes(ar, schema.GroupVersionResource(ar.Resource))) {
		return true
	}
	if d.options.CallsForReviews {
		return false
	}
	switch ar.Resource.Group {
	case "authentication.k8s.io":
		return slices.Contains([]string{"selfsubjectreviews", "tokenreviews"}, ar.Resource.Resource)
	case "authorization.k8s.io":
		return slices.Contains([]string{"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"}, ar.Resource.Resource)
	}
	return false
}

// complete returns a copy of a request with the fields that an API server sets.
func complete(ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
	out := *ar
	// A service would take a decoded object for what is in Raw.
	for _, o := range []*runtime.RawExtension{&out.Object, &out.OldObject, &out.Options} {
		*o = runtime.RawExtension{Raw: o.Raw}
	}
	if kind := ar.Kind; out.RequestKind == nil {
		out.RequestKind = &kind
	}
	if resource := ar.Resource; out.RequestResource == nil {
		out.RequestResource, out.RequestSubResource = &resource, ar.SubResource
	}
	if metadata := metadataOf(&out, out.Object); ar.Operation == admissionv1.Create && ar.SubResource == "" && metadata != nil {
		out.Name, out.Namespace = cmp.Or(ar.Name, metadata.Name), cmp.Or(ar.Namespace, metadata.Namespace)
	}
	if isNamespace(ar) {
		out.Namespace = cmp.Or(ar.Namespace, out.Name)
	}
	if out.DryRun == nil {
		out.DryRun = new(false)
	}
	if name, ok := map[admissionv1.Operation]string{admissionv1.Create: "CreateOptions", admissionv1.Update: "UpdateOptions", admissionv1.Delete: "DeleteOptions"}[ar.Operation]; ok && len(out.Options.Raw) == 0 {
		dryRun := ""
		if *out.DryRun {
			dryRun = `,"dryRun":["All"]`
		}
		out.Options.Raw = fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q%s}`, name, metav1.SchemeGroupVersion, dryRun)
	}
	return &out
}

func isNamespace(ar *admissionv1.AdmissionRequest) bool {
	return ar.Resource.Group == "" && ar.Resource.Resource == "namespaces"
}

// metadataOf returns the name, the namespace and the labels of an object of a request, or nil if there is none, as in the options of a CONNECT. The API server
// reads the metadata of a custom object field by field, so a label that is no text leaves the object without labels.
func metadataOf(ar *admissionv1.AdmissionRequest, object runtime.RawExtension) *metav1.ObjectMeta {
	var o struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	if len(object.Raw) == 0 || ar.Operation == admissionv1.Connect {
		return nil
	}
	out := &metav1.ObjectMeta{}
	if kjson.UnmarshalCaseSensitivePreserveInts(object.Raw, &o) != nil {
		return out
	}
	for name, field := range map[string]any{"name": &out.Name, "generateName": &out.GenerateName, "namespace": &out.Namespace} {
		_ = json.Unmarshal(o.Metadata[name], field) // It stays empty.
	}
	var read map[string]string
	if json.Unmarshal(o.Metadata["labels"], &read) == nil {
		out.Labels = read
	}
	return out
}
