// Package dispatch decides requests in this process as an API server does that calls the webhooks of services: a request goes in,
// and the object with all changes and the answer of each webhook come out. It is for programs that ask what the webhooks would do
// with an object that nobody creates.
//
// Upstream: k8s.io/apiserver/pkg/admission/plugin/webhook, its generic, mutating and validating dispatchers, and
// k8s.io/apiserver/pkg/admission NewReinvocationHandler.
package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/postern-dev/postern/pkg/router"
)

// Options are what a Dispatcher needs to know of the API server. The zero value is that of an API server without defaults.
type Options struct {
	// Default sets the defaults of an object as the API server does before admission and after each patch. The object has its
	// type of k8s.io/api, which drops unknown fields, or is unstructured. Nil sets none, and objects keep all fields of the request.
	Default func(runtime.Object)
	// Conditions reports whether all match conditions of a webhook are true for a request. Its error is that of a condition
	// that cannot be evaluated. Nil evaluates the conditions of package registration, and none that is written by others,
	// because CEL is as large as all of Postern: see Decision.Unknown.
	Conditions func(context.Context, *Webhook, *admissionv1.AdmissionRequest) (bool, error)
	// NamespaceLabels returns the labels of a namespace, for webhooks with a namespaceSelector. A NotFound error is the answer
	// to the request. Nil knows no namespace: see Decision.Unknown.
	NamespaceLabels func(ctx context.Context, name string) (labels.Set, error)
	// Reviews is true for an API server before 1.37, which also calls webhooks for token and access reviews.
	Reviews bool
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
// It returns an error for a webhook that an API server would refuse because of its selectors.
func New(services []router.AdmissionService, o Options) (*Dispatcher, error) {
	d := &Dispatcher{options: o}
	for _, s := range services {
		mutating, err := mutatingHooks(s)
		if err != nil {
			return nil, err
		}
		validating, err := validatingHooks(s)
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

// Dispatch decides a request, which must have an operation, a kind, a resource, and the objects of its operation as JSON. It may
// be for a subresource, such as the UPDATE of a pods/status or the CONNECT to a pods/exec, and a dry run. An error says that there
// is no such request, or that the context ended.
func (d *Dispatcher) Dispatch(ctx context.Context, ar *admissionv1.AdmissionRequest) (*Decision, error) {
	if err := check(ar); err != nil {
		return nil, err
	}
	r, err := d.newRun(ar)
	if err != nil {
		return nil, err
	}
	if !d.isExempt(ar) {
		err = r.decide(ctx)
	}
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return nil, err
	}
	r.decision.Object = r.request.Object.Raw
	return r.decision, nil
}

// decide calls the webhooks of both phases.
func (r *run) decide(ctx context.Context) error {
	again := &reinvocations{}
	if r.mutate(ctx, again, false); r.decision.Status == nil && r.mustReinvoke {
		r.mutate(ctx, again, true)
	}
	if r.decision.Status != nil {
		return nil
	}
	if err := r.generateName(); err != nil {
		return fmt.Errorf("naming the object: %w", err)
	}
	r.validate(ctx)
	return nil
}

// check returns an error for a request that no API server sends.
func check(ar *admissionv1.AdmissionRequest) error {
	object, old := len(ar.Object.Raw) > 0, len(ar.OldObject.Raw) > 0
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
// Upstream: rules.IsExemptAdmissionConfigurationResource, and k8s.io/kubernetes/pkg/kubeapiserver/admission/exclusion Excluded.
func (d *Dispatcher) isExempt(ar *admissionv1.AdmissionRequest) bool {
	switch ar.Resource.Group {
	case admissionregistrationv1.GroupName:
		return slices.Contains([]string{
			"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
			"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
		}, ar.Kind.Kind)
	case "authentication.k8s.io":
		return !d.options.Reviews && slices.Contains([]string{"selfsubjectreviews", "tokenreviews"}, ar.Resource.Resource)
	case "authorization.k8s.io":
		return !d.options.Reviews && slices.Contains([]string{"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"}, ar.Resource.Resource)
	}
	return false
}

// complete returns a copy of a request with the fields that an API server always sets.
func complete(ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
	out := *ar
	if out.UID == "" {
		out.UID = uuid.NewUUID()
	}
	if out.RequestKind == nil {
		out.RequestKind = &ar.Kind
	}
	if out.RequestResource == nil {
		out.RequestResource, out.RequestSubResource = &ar.Resource, ar.SubResource
	}
	if out.DryRun == nil {
		out.DryRun = new(false)
	}
	if name, ok := map[admissionv1.Operation]string{admissionv1.Create: "CreateOptions", admissionv1.Update: "UpdateOptions", admissionv1.Delete: "DeleteOptions"}[ar.Operation]; ok && len(out.Options.Raw) == 0 {
		out.Options.Raw = fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q}`, name, metav1.SchemeGroupVersion)
	}
	return &out
}
