package dispatch

import (
	"encoding/json"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/postern-dev/postern/pkg/router"
)

// Decision is the decision of a request.
type Decision struct {
	// Status is the answer of the API server to a request that is not admitted, or nil. The API server calls validating webhooks
	// at the same time and answers with the first error that arrives. This is the one of the first webhook in order, and Calls has
	// the answers of the others. In the message of a failure, the words of the API server's HTTP client are left out.
	Status *metav1.Status
	// Object is the JSON of the object after the changes of the webhooks so far and with the defaults, or nil if the request has
	// none. It may be that of the request, and is read-only.
	Object json.RawMessage
	// Calls are the calls of webhooks, in order.
	Calls []Call
	// Unknown says what the API server would have decided by something that the Dispatcher does not know.
	Unknown []Unknown
}

// Call is one call of a webhook.
type Call struct {
	Webhook *Webhook
	// Again is true for a second call, because a later webhook changed the object.
	Again bool
	// Response is the response of the service, or nil if Failure says why it could not decide.
	Response *admissionv1.AdmissionResponse
	Failure  *router.Failure
	// Changed is true if the patch of the response changed the object.
	Changed bool
}

// Unknown is something about a call that the Dispatcher does not know: whether the API server calls the webhook, or by which failure
// policy. The Dispatcher called the webhook, unless Skipped is true.
type Unknown struct {
	Webhook *Webhook
	Skipped bool
	// Reason is a sentence without a capital letter and without a full stop.
	Reason string
}

// Allowed reports whether the request is admitted.
func (d *Decision) Allowed() bool { return d.Status == nil }

// Warnings returns the warnings of all calls, each once. The API server truncates them if they are long.
func (d *Decision) Warnings() []string {
	var out []string
	for _, c := range d.Calls {
		if c.Response == nil {
			continue
		}
		for _, w := range c.Response.Warnings {
			if !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
	}
	return out
}

// AuditAnnotations returns the audit annotations of all calls. Their keys are those in an audit event: the name of the webhook, a
// slash and the key of the service.
func (d *Decision) AuditAnnotations() map[string]string {
	out := map[string]string{}
	for _, c := range d.Calls {
		if c.Response == nil {
			continue
		}
		for key, value := range c.Response.AuditAnnotations {
			name := c.Webhook.Name + "/" + key
			// The API server keeps the first value of a key, and drops a key that is no qualified name.
			if _, ok := out[name]; !ok && len(validation.IsQualifiedName(name)) == 0 {
				out[name] = value
			}
		}
	}
	return out
}
