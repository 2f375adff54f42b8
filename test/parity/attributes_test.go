package parity_test

import (
	"encoding/json"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/postern-dev/postern/pkg/admit/admittest"
)

// attributes is a request in the form that plugins of kube-apiserver receive. It records audit annotations,
// which the API server reads through an unexported interface.
type attributes struct {
	admission.Attributes
	audit map[string]string
	mu    sync.Mutex
}

func (a *attributes) AddAnnotation(key, value string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.audit[key] = value
	return a.Attributes.AddAnnotation(key, value)
}

// attributesOf converts the request of a case.
func attributesOf(t *testing.T, ar *admissionv1.AdmissionRequest) *attributes {
	t.Helper()
	return &attributes{
		audit: map[string]string{},
		Attributes: admission.NewAttributesRecord(
			internal(t, ar.Object.Raw), internal(t, ar.OldObject.Raw), schema.GroupVersionKind(ar.Kind), ar.Namespace, ar.Name,
			schema.GroupVersionResource(ar.Resource), ar.SubResource, admission.Operation(ar.Operation), optionsOf(t, ar.Options.Raw), *ar.DryRun, userOf(ar)),
	}
}

func userOf(ar *admissionv1.AdmissionRequest) user.Info {
	info := &user.DefaultInfo{Name: ar.UserInfo.Username, UID: ar.UserInfo.UID, Groups: ar.UserInfo.Groups}
	for k, v := range ar.UserInfo.Extra {
		if info.Extra == nil {
			info.Extra = map[string][]string{}
		}
		info.Extra[k] = v
	}
	return info
}

// requestOf returns the request of a step.
func requestOf(t *testing.T, r *admittest.Request) *admissionv1.AdmissionRequest {
	t.Helper()
	ar, err := r.Admission()
	if err != nil {
		t.Fatalf("Making the request: %v", err)
	}
	return ar
}

// versioned decodes an object without defaulting; nil if there is no object. A kind that kube-apiserver does
// not know is returned undecoded.
func versioned(t *testing.T, raw []byte) runtime.Object {
	t.Helper()
	if len(raw) == 0 {
		return nil
	}
	obj, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(raw, &u.Object); err != nil {
			t.Fatalf("Decoding an object: %v", err)
		}
		return u
	}
	if err != nil {
		t.Fatalf("Decoding an object: %v", err)
	}
	return obj
}

// internal decodes an object and converts it to the internal version that plugins of kube-apiserver use.
func internal(t *testing.T, raw []byte) runtime.Object {
	t.Helper()
	obj := versioned(t, raw)
	if _, custom := obj.(*unstructured.Unstructured); obj == nil || custom {
		return obj
	}
	gvk := obj.GetObjectKind().GroupVersionKind()
	out, err := legacyscheme.Scheme.ConvertToVersion(obj, schema.GroupVersion{Group: gvk.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		t.Fatalf("Converting a %s: %v", gvk.Kind, err)
	}
	return out
}

// external converts an object back and encodes it; nil if there is no object.
func external(t *testing.T, obj runtime.Object, kind schema.GroupVersionKind) []byte {
	t.Helper()
	if obj == nil {
		return nil
	}
	if _, custom := obj.(*unstructured.Unstructured); !custom {
		var err error
		if obj, err = legacyscheme.Scheme.ConvertToVersion(obj, kind.GroupVersion()); err != nil {
			t.Fatalf("Converting a %s back: %v", kind.Kind, err)
		}
	}
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatalf("Encoding a %s: %v", kind.Kind, err)
	}
	return data
}

func optionsOf(t *testing.T, raw []byte) runtime.Object {
	t.Helper()
	if len(raw) == 0 {
		return nil
	}
	return versioned(t, raw)
}

func objectInterfaces() admission.ObjectInterfaces {
	return admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
}
