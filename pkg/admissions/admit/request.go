package admit

import (
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Request is one admission request with its objects decoded, once, for all
// plugins of the chain.
type Request struct {
	*admissionv1.AdmissionRequest
	// Object and OldObject are of the types of k8s.io/api where it has them, else
	// unstructured; nil where the request has none. OldObject is nobody's to
	// change, Object only a Mutate's.
	Object, OldObject runtime.Object

	warnings []string
	audit    map[string]string
}

// Warn tells the client something that does not stop the request, in at most 120
// characters and without a prefix.
func (r *Request) Warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// Audit adds an annotation to the request's audit event. The API server puts the
// webhook's name and a slash before the key, which may hold none itself.
func (r *Request) Audit(key, value string) {
	if r.audit == nil {
		r.audit = map[string]string{}
	}
	r.audit[key] = value
}

// IsDryRun reports whether nothing may be written.
func (r *Request) IsDryRun() bool { return r.DryRun != nil && *r.DryRun }
