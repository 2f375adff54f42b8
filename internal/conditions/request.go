package conditions

import (
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/scheme"
)

// Request is an admission request as conditions evaluate it. Objects of kinds in k8s.io/api
// are typed.
type Request struct {
	attributes *admission.VersionedAttributes
}

// NewRequest decodes the objects of a request.
func NewRequest(ar *admissionv1.AdmissionRequest) (*Request, error) {
	object, err := Decode(ar.Object.Raw)
	if err != nil {
		return nil, fmt.Errorf("object: %w", err)
	}
	old, err := Decode(ar.OldObject.Raw)
	if err != nil {
		return nil, fmt.Errorf("oldObject: %w", err)
	}
	return NewRequestOf(ar, object, old)
}

// NewRequestOf is NewRequest for objects that are decoded already. They are nil if there are none.
func NewRequestOf(ar *admissionv1.AdmissionRequest, object, old runtime.Object) (*Request, error) {
	options, err := options(ar)
	if err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	kind := schema.GroupVersionKind(ar.Kind)
	dryRun := ar.DryRun != nil && *ar.DryRun
	return &Request{&admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(object, old, kind, ar.Namespace, ar.Name,
			schema.GroupVersionResource(ar.Resource), ar.SubResource, admission.Operation(ar.Operation), options, dryRun, userOf(ar)),
		VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(old), VersionedKind: kind,
	}}, nil
}

// Decode returns nil if there is no object. It neither defaults nor converts the object.
func Decode(raw []byte) (runtime.Object, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var head metav1.TypeMeta
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, fmt.Errorf("reading the kind: %w", err)
	}
	object, err := scheme.Scheme.New(head.GroupVersionKind())
	if err != nil {
		u := &unstructured.Unstructured{}
		return u, u.UnmarshalJSON(raw)
	}
	if err := json.Unmarshal(raw, object); err != nil {
		return nil, fmt.Errorf("decoding a %s: %w", head.Kind, err)
	}
	return object, nil
}

func options(ar *admissionv1.AdmissionRequest) (runtime.Object, error) {
	var out runtime.Object
	switch ar.Operation {
	case admissionv1.Create:
		out = &metav1.CreateOptions{}
	case admissionv1.Update:
		out = &metav1.UpdateOptions{}
	case admissionv1.Delete:
		out = &metav1.DeleteOptions{}
	default:
		return nil, nil
	}
	if len(ar.Options.Raw) == 0 {
		return out, nil
	}
	return out, json.Unmarshal(ar.Options.Raw, out)
}

func userOf(ar *admissionv1.AdmissionRequest) user.Info {
	info := &user.DefaultInfo{Name: ar.UserInfo.Username, UID: ar.UserInfo.UID, Groups: ar.UserInfo.Groups, Extra: map[string][]string{}}
	for k, v := range ar.UserInfo.Extra {
		info.Extra[k] = v
	}
	return info
}
