package router

import (
	"context"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/postern-dev/postern/internal/footprint"
)

const (
	// maxEnvelopeBytes is how much memory the envelope of a review may take. The user is the only part of it that can be
	// large. The headers of a request to an API server, which can name the groups of a user, have at most 1 MiB.
	maxEnvelopeBytes = 4 << 20

	// maxOptionsBytes is how long the text of the options of a request may be. An API server validates options, and all
	// their fields are short, unless a user repeats "All" in dryRun many times.
	maxOptionsBytes = 256 << 10

	// smallEnvelope is the memory of an envelope that is not counted. The envelope of most requests is smaller.
	smallEnvelope = 4 << 10
)

// envelope has the parts of a review that can take more memory than their text. Its objects and its options stay text.
type envelope struct {
	Request struct {
		UserInfo authenticationv1.UserInfo `json:"userInfo"`
	} `json:"request"`
	Response admissionv1.AdmissionResponse `json:"response"`
}

// takeEnvelope takes the memory that decoding the envelope of a review needs. It counts against the source, as the body.
// Three bytes of text can decode into 16 bytes of a list, so decoding could use up all memory.
func (l *lease) takeEnvelope(ctx context.Context, review []byte) error {
	n := footprint.Of(review, reflect.TypeFor[envelope]())
	if n > maxEnvelopeBytes {
		return tooLarge("the user of the review would take %d bytes of memory, more than the %d that are allowed", n, maxEnvelopeBytes)
	}
	if n <= smallEnvelope {
		return nil
	}
	return l.growBody(ctx, n)
}

// checkOptions returns an error for options that no API server sends.
func checkOptions(ar *admissionv1.AdmissionRequest) error {
	if n := len(ar.Options.Raw); n > maxOptionsBytes {
		return tooLarge("request.options has %d bytes, more than the %d that are allowed", n, maxOptionsBytes)
	}
	return nil
}
