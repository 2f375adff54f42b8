package admit

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/internal/objects"
)

// Request is one admission request. Its objects are decoded once for all plugins of the chain. A plugin may keep any part
// of it after the Func returned.
type Request struct {
	*admissionv1.AdmissionRequest
	// Object and OldObject have the types of k8s.io/api, or are unstructured if
	// k8s.io/api has no type for their kind. An object that the request does not have
	// is nil. Only Mutate may modify Object, and any memory that Object points to. OldObject and the AdmissionRequest are
	// read-only.
	Object, OldObject runtime.Object

	warnings []string
	audit    map[string]string
	// grown is the memory in bytes of what plugins added to Object.
	grown int64
}

// Warn adds a warning to the response. A warning has at most 120 characters and no
// prefix such as "warning:".
func (r *Request) Warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// Audit adds an annotation to the audit event of the request. The API server prefixes
// the key with the name of the webhook and a slash, so the key must not have a slash. The key "plugin" is
// ignored: it names the plugin that denied the request.
func (r *Request) Audit(key, value string) {
	if key != DeniedBy {
		r.annotate(key, value)
	}
}

func (r *Request) annotate(key, value string) {
	if r.audit == nil {
		r.audit = map[string]string{}
	}
	r.audit[key] = value
}

// IsDryRun reports whether the request is a dry run, in which nothing may be written.
func (r *Request) IsDryRun() bool { return r.DryRun != nil && *r.DryRun }

// newRequest decodes the objects of a request. It denies an object that does not decode: its author chose it, and must not
// choose the failure policy with it.
func newRequest(ctx context.Context, ar *admissionv1.AdmissionRequest) (*Request, error) {
	r := &Request{AdmissionRequest: ar}
	for _, part := range []struct {
		name string
		from *runtime.RawExtension
		into *runtime.Object
	}{{"object", &ar.Object, &r.Object}, {"oldObject", &ar.OldObject, &r.OldObject}} {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("request.%s was not decoded: %w", part.name, err)
		}
		obj, err := objects.Object(part.from, ar.Kind)
		if err != nil {
			err = fmt.Errorf("request.%s: %w", part.name, err)
			if !apierrors.IsRequestEntityTooLargeError(err) {
				err = apierrors.NewBadRequest(fmt.Sprintf("%.1000v", err))
			}
			return nil, Deny(err)
		}
		*part.into = obj
	}
	return r, nil
}
