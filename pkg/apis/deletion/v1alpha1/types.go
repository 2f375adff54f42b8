// Package v1alpha1 has the Go types of deletion.postern.dev/v1alpha1: the review that the plugin DeletionGate sends to the
// backend of a gate, and the names that the plugin uses in the Kubernetes API. No API server serves the group.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// GroupName is the API group of the review, and the prefix of the annotations.
	GroupName = "deletion.postern.dev"
	// APIVersion is the API version of the review.
	APIVersion = GroupName + "/v1alpha1"
	// Kind is the kind of the review.
	Kind = "DeletionReview"

	// WaitingAnnotation has the record of the gates of a pod, a JSON object with a Record for each gate.
	WaitingAnnotation = GroupName + "/waiting"
	// ReleaseAnnotation opens all gates of a pod. Its value is the reason, which must not be empty.
	ReleaseAnnotation = GroupName + "/release"

	// Resource is the resource of access reviews. It is virtual: no API server serves it.
	Resource = "gates"
	// RecordVerb permits changes of WaitingAnnotation.
	RecordVerb = "record"
	// ReleaseVerb permits changes of ReleaseAnnotation, and changes that take a pod out of its gate.
	ReleaseVerb = "release"

	// KeyHeader is the HTTP header with the idempotency key of a review: the gate and the UID of the pod.
	KeyHeader = "Idempotency-Key"
)

// Action is what a review asks of a backend.
type Action string

const (
	// Prepare asks the backend to prepare the deletion of the pod. A backend may receive it more than once for the same
	// pod, and must start the preparation once.
	Prepare Action = "Prepare"
	// Check asks whether the pod may be deleted. It starts nothing.
	Check Action = "Check"
)

// Cause is the kind of the request that a gate holds back.
type Cause string

const (
	// Delete is a DELETE of the pod.
	Delete Cause = "Delete"
	// Evict is an eviction of the pod.
	Evict Cause = "Evict"
)

// DeletionReview is the body of a request to a backend, with Request, and of its answer, with Response.
type DeletionReview struct {
	metav1.TypeMeta `json:",inline"`
	Request         *Request  `json:"request,omitempty"`
	Response        *Response `json:"response,omitempty"`
}

// Request describes the pod that is to be deleted.
type Request struct {
	// UID is the UID of the pod. It is the same in all reviews of the pod.
	UID types.UID `json:"uid"`
	// Gate is the name of the gate.
	Gate   string `json:"gate"`
	Action Action `json:"action"`
	Pod    Pod    `json:"pod"`
	// Cause and User are those of the request at hand. They are empty if Postern asks on its own account.
	Cause Cause  `json:"cause,omitempty"`
	User  string `json:"user,omitempty"`
	// Since is the time of the first refusal.
	Since metav1.Time `json:"since"`
	// Deadline is when the gate lets the pod go in any case.
	Deadline metav1.Time `json:"deadline"`
}

// Pod refers to a pod.
type Pod struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	NodeName  string            `json:"nodeName"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// Response is the answer of a backend.
type Response struct {
	// UID is that of the request.
	UID types.UID `json:"uid"`
	// Ready lets the pod go.
	Ready bool `json:"ready"`
	// Message says what the pod waits for. It is shown to whoever deletes the pod.
	Message string `json:"message,omitempty"`
}

// Record is the state of one gate of a pod.
type Record struct {
	// Since is the time of the first refusal.
	Since metav1.Time `json:"since"`
	// Claimed is when a replica of Postern last set out to send Prepare.
	Claimed *metav1.Time `json:"claimed,omitempty"`
	// Failed is when a replica had claimed and last got no answer to Prepare.
	Failed *metav1.Time `json:"failed,omitempty"`
	// Started is when the backend had answered Prepare.
	Started *metav1.Time `json:"started,omitempty"`
	// Ready is when Postern first saw that the gate was open. A gate may close again.
	Ready *metav1.Time `json:"ready,omitempty"`
}
