package admittest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/internal/resources"
)

// Request is one admission request. Kind, resource, name and namespace are set only if they
// cannot be derived from the object.
type Request struct {
	// Operation is CREATE, UPDATE, DELETE or CONNECT. A DELETE has only an OldObject, a CREATE and a CONNECT only an
	// Object, and an UPDATE both.
	Operation admissionv1.Operation `json:"operation"`
	Object    json.RawMessage       `json:"object"`
	OldObject json.RawMessage       `json:"oldObject"`
	// User is a name, or a whole UserInfo. It defaults to the user alice.
	User   User `json:"user"`
	DryRun bool `json:"dryRun"`
	// Options default to empty options of the operation.
	Options json.RawMessage `json:"options"`
	// Kind is a kind such as apps/v1/Deployment, and Resource a resource such as apps/v1/deployments.
	Kind        string `json:"kind"`
	Resource    string `json:"resource"`
	SubResource string `json:"subresource"`
	// Name and Namespace are nil unless they differ from those of the object.
	Name      *string `json:"name"`
	Namespace *string `json:"namespace"`

	// defined are the definitions of the case.
	defined resources.Definitions
}

// User is the user who sends the request.
type User struct{ authenticationv1.UserInfo }

// UnmarshalJSON also accepts a plain name.
func (u *User) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &u.Username); err == nil {
		u.Groups = []string{"system:authenticated"}
		return nil
	}
	return json.Unmarshal(data, &u.UserInfo)
}

// head contains the fields of any object that determine the request.
type head struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// UID is the uid of every request. No object in a case has this uid.
const UID types.UID = "705ab4f5-6393-11e8-b7cc-42010a800002"

func (r *Request) check() error {
	_, err := r.Admission()
	return err
}

// Main returns the object of the request, which is the old one if it is deleted.
func (r *Request) Main() *json.RawMessage {
	if r.Operation == admissionv1.Delete {
		return &r.OldObject
	}
	return &r.Object
}

// Admission returns the request in the form that the API server sends.
func (r *Request) Admission() (*admissionv1.AdmissionRequest, error) {
	main := *r.Main()
	switch r.Operation {
	case admissionv1.Create, admissionv1.Connect, admissionv1.Update:
	case admissionv1.Delete:
		if len(r.Object) > 0 {
			return nil, errors.New("what is deleted is the oldObject")
		}
	default:
		return nil, fmt.Errorf("operation %q: want CREATE, UPDATE, DELETE or CONNECT", r.Operation)
	}
	if len(main) == 0 {
		return nil, errors.New("there is no object")
	}
	var h head
	if err := json.Unmarshal(main, &h); err != nil {
		return nil, fmt.Errorf("reading the object's head: %w", err)
	}
	ar := &admissionv1.AdmissionRequest{
		UID: UID, Operation: r.Operation, DryRun: &r.DryRun, UserInfo: r.User.UserInfo,
		Object: runtime.RawExtension{Raw: r.Object}, OldObject: runtime.RawExtension{Raw: r.OldObject},
	}
	if ar.UserInfo.Username == "" {
		ar.UserInfo = authenticationv1.UserInfo{Username: "alice", Groups: []string{"system:authenticated"}}
	}
	kind := schema.FromAPIVersionAndKind(h.APIVersion, h.Kind)
	if r.Kind != "" {
		kind = schema.FromAPIVersionAndKind(splitLast(r.Kind))
	}
	if kind.Kind == "" || kind.Version == "" {
		return nil, errors.New("the object has no apiVersion or no kind")
	}
	resource, sub, err := r.resource(kind)
	if err != nil {
		return nil, err
	}
	ar.Kind, ar.Resource, ar.SubResource = metav1.GroupVersionKind(kind), metav1.GroupVersionResource(resource), sub
	ar.RequestKind, ar.RequestResource, ar.RequestSubResource = &ar.Kind, &ar.Resource, sub
	ar.Name, ar.Namespace = h.Metadata.Name, h.Metadata.Namespace
	if kind.GroupKind() == (schema.GroupKind{Kind: "Namespace"}) {
		ar.Namespace = ar.Name
	}
	if r.Name != nil {
		ar.Name = *r.Name
	}
	if r.Namespace != nil {
		ar.Namespace = *r.Namespace
	} else if err := r.defined.Check(kind, ar.Namespace); err != nil {
		return nil, fmt.Errorf("the object %w", err)
	}
	ar.Options.Raw = r.options()
	return ar, nil
}

// resource returns the resource of the request.
func (r *Request) resource(kind schema.GroupVersionKind) (schema.GroupVersionResource, string, error) {
	plural, err := r.defined.Resource(kind)
	if err != nil && r.Resource == "" {
		return schema.GroupVersionResource{}, "", err
	}
	resource, sub := kind.GroupVersion().WithResource(plural), ""
	if known, ok := resources.Subresources()[kind.GroupKind()]; ok {
		main, s, _ := strings.Cut(known, "/")
		resource, sub = schema.GroupVersionResource{Version: "v1", Resource: main}, s
	}
	if r.Resource != "" {
		gv, name := splitLast(r.Resource)
		resource.Resource, sub = name, ""
		if gv != "" {
			of := schema.FromAPIVersionAndKind(gv, "")
			resource.Group, resource.Version = of.Group, of.Version
		}
	}
	return resource, cmp.Or(r.SubResource, sub), nil
}

func (r *Request) options() []byte {
	if len(r.Options) > 0 {
		return r.Options
	}
	kind := map[admissionv1.Operation]string{admissionv1.Create: "CreateOptions", admissionv1.Update: "UpdateOptions", admissionv1.Delete: "DeleteOptions"}[r.Operation]
	if kind == "" {
		return nil
	}
	return []byte(fmt.Sprintf(`{"kind":%q,"apiVersion":"meta.k8s.io/v1"}`, kind))
}

// splitLast splits apps/v1/deployments into apps/v1 and deployments.
func splitLast(s string) (before, last string) {
	i := strings.LastIndex(s, "/")
	return s[:max(i, 0)], s[i+1:]
}
