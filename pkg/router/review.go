package router

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// MaxBodyBytes is the largest request body that is read. An object may have
// about 3 MiB (etcd's limit on requests is 1.5 MiB, kube-apiserver's on bodies
// 3 MiB), and a review of an update carries it twice, plus the envelope.
const MaxBodyBytes = 7 << 20

// trustedBytes is what is set aside for a body because its sender says so.
const trustedBytes = 256 << 10

// mediaType is what reviews are sent and answered as.
const mediaType = "application/json"

var reviewType = metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}

// rejection is a request that never reaches an AdmitFunc: the HTTP status, the
// reason as a metric label, and one sentence for the sender.
type rejection struct {
	code     int
	reason   string
	sentence string
}

func (e *rejection) Error() string { return e.sentence }

func badRequest(reason, format string, args ...any) *rejection {
	return &rejection{code: http.StatusBadRequest, reason: reason, sentence: fmt.Sprintf(format, args...)}
}

// readReview reads and checks the envelope of a request.
func readReview(w http.ResponseWriter, req *http.Request) (*admissionv1.AdmissionRequest, error) {
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, &rejection{http.StatusMethodNotAllowed, "method", fmt.Sprintf("method %s is not allowed, reviews are sent by POST", req.Method)}
	}
	ct := req.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(ct); err != nil || media != mediaType {
		return nil, &rejection{http.StatusUnsupportedMediaType, "content_type", fmt.Sprintf("content type %q is not supported, want %s", ct, mediaType)}
	}
	if enc := req.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return nil, &rejection{http.StatusUnsupportedMediaType, "content_type", fmt.Sprintf("content encoding %q is not supported, want none", enc)}
	}
	body, err := readBody(w, req)
	if err != nil {
		return nil, err
	}
	return decodeReview(body)
}

func readBody(w http.ResponseWriter, req *http.Request) ([]byte, error) {
	var buf bytes.Buffer
	if n := req.ContentLength; n > 0 {
		// ReadFrom wants room to spare to find the end without growing. Whoever only
		// says that much is to come gets no more than most reviews need.
		buf.Grow(int(min(n, trustedBytes)) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(http.MaxBytesReader(w, req.Body, MaxBodyBytes))
	var tooMany *http.MaxBytesError
	switch {
	case errors.As(err, &tooMany):
		// A sender in the middle of writing does not look at the answer: take
		// as much again before it is sent, and no more.
		_, _ = io.CopyN(io.Discard, req.Body, MaxBodyBytes)
		return nil, &rejection{http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the body is larger than the %d bytes that a review may have", MaxBodyBytes)}
	case err != nil:
		return nil, badRequest("unreadable", "reading the body: %v", err)
	case buf.Len() == 0:
		return nil, badRequest("empty", "the body is empty, want an AdmissionReview")
	}
	return buf.Bytes(), nil
}

// decodeReview decodes an AdmissionReview and returns its request. Field names
// are case-sensitive, as the API server's own decoder has them.
func decodeReview(body []byte) (*admissionv1.AdmissionRequest, error) {
	var review admissionv1.AdmissionReview
	if !decodeParts(body, &review) {
		review = admissionv1.AdmissionReview{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &review); err != nil {
			return nil, badRequest("undecodable", "the body is not an AdmissionReview: %v", err)
		}
	}
	if review.TypeMeta != reviewType {
		return nil, badRequest("wrong_kind", "the body is kind %q of version %q, want %q of %q", review.Kind, review.APIVersion, reviewType.Kind, reviewType.APIVersion)
	}
	if review.Request == nil {
		return nil, badRequest("no_request", "the AdmissionReview has no request")
	}
	return review.Request, nil
}
