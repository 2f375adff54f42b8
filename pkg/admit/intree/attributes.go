package intree

import (
	"fmt"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	kjson "sigs.k8s.io/json"

	"github.com/postern-dev/postern/pkg/admit"
)

// attributes implements admission.Attributes for one request, and records the
// annotations and warnings of the plugin. Kind and resource are those that the API
// server converted the object to.
type attributes struct {
	admission.Attributes

	mu      sync.Mutex // A plugin may annotate and warn from several goroutines.
	request *admit.Request
}

func newAttributes(r *admit.Request) (*attributes, error) {
	options, err := operationOptions(r)
	if err != nil {
		return nil, err
	}
	record := admission.NewAttributesRecord(r.Object, r.OldObject, schema.GroupVersionKind(r.Kind), r.Namespace, r.Name,
		schema.GroupVersionResource(r.Resource), r.SubResource, admission.Operation(r.Operation), options, r.IsDryRun(), userOf(r.UserInfo))
	return &attributes{Attributes: record, request: r}, nil
}

// operationOptions returns the options of the request, or nil. Plugins compare the
// interface with nil, so it must not hold a nil pointer.
func operationOptions(r *admit.Request) (runtime.Object, error) {
	if len(r.Options.Raw) == 0 {
		return nil, nil
	}
	var options runtime.Object
	switch r.Operation {
	case admissionv1.Create:
		options = &metav1.CreateOptions{}
	case admissionv1.Update:
		options = &metav1.UpdateOptions{}
	case admissionv1.Delete:
		options = &metav1.DeleteOptions{}
	case admissionv1.Connect:
		return nil, nil
	default:
		return nil, nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(r.Options.Raw, options); err != nil {
		return nil, fmt.Errorf("request.options: %w", err)
	}
	return options, nil
}

func userOf(u authenticationv1.UserInfo) user.Info {
	info := &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups}
	if len(u.Extra) > 0 {
		info.Extra = make(map[string][]string, len(u.Extra))
		for k, v := range u.Extra {
			info.Extra[k] = v
		}
	}
	return info
}

// AddAnnotation implements admission.Attributes.
func (a *attributes) AddAnnotation(key, value string) error {
	return a.AddAnnotationWithLevel(key, value, auditinternal.LevelMetadata)
}

// AddAnnotationWithLevel implements admission.Attributes, with its checks of the
// key. The API server logs the annotations of a webhook at the level Metadata, so
// AddAnnotationWithLevel drops annotations for a higher level. The API server replaces
// the domain of the key with the name of the webhook.
func (a *attributes) AddAnnotationWithLevel(key, value string, level auditinternal.Level) error {
	if err := a.Attributes.AddAnnotationWithLevel(key, value, level); err != nil {
		return err // These are the plugin's own words.
	}
	if auditinternal.LevelMetadata.Less(level) {
		return nil
	}
	_, name, _ := strings.Cut(key, "/")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.request.Audit(name, value)
	return nil
}

// AddWarning implements warning.Recorder.
func (a *attributes) AddWarning(_, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.request.Warn("%s", text)
}
