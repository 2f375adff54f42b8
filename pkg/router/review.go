package router

import (
	"fmt"
	"mime"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/postern-dev/postern/internal/plainjson"
)

// MaxBodyBytes is the largest request body that is read. An object may have
// about 3 MiB (etcd's limit on requests is 1.5 MiB, kube-apiserver's on bodies
// 3 MiB), and a review of an update carries it twice, plus the envelope.
const MaxBodyBytes = 7 << 20

// mediaType is the content type of reviews and answers.
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

func tooMany(reason, sentence string) *rejection {
	return &rejection{code: http.StatusTooManyRequests, reason: reason, sentence: sentence}
}

// checkHeaders checks the headers of a request before its body is read. It returns
// why the request cannot be a review.
func checkHeaders(w http.ResponseWriter, req *http.Request) error {
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return &rejection{http.StatusMethodNotAllowed, "method", fmt.Sprintf("method %s is not allowed, reviews are sent by POST", req.Method)}
	}
	ct := req.Header.Get("Content-Type")
	if !isMediaType(ct) {
		return &rejection{http.StatusUnsupportedMediaType, "content_type", fmt.Sprintf("content type %q is not supported, want %s", ct, mediaType)}
	}
	if enc := req.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return &rejection{http.StatusUnsupportedMediaType, "content_type", fmt.Sprintf("content encoding %q is not supported, want none", enc)}
	}
	return nil
}

func isMediaType(contentType string) bool {
	if contentType == mediaType {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == mediaType
}

// decodeReview decodes an AdmissionReview and returns its request. It decodes the objects
// into those that newObject, unless nil, returns. Field names are case-sensitive, as in
// the API server's own decoder.
func decodeReview(body []byte, newObject func(*admissionv1.AdmissionRequest) runtime.Object) (*admissionv1.AdmissionRequest, error) {
	var review admissionv1.AdmissionReview
	var objectFor func(*runtime.RawExtension) runtime.Object
	if newObject != nil {
		objectFor = func(raw *runtime.RawExtension) runtime.Object {
			if ar := review.Request; ar != nil && (raw == &ar.Object || raw == &ar.OldObject) {
				return newObject(ar)
			}
			return nil
		}
	}
	if !plainjson.UnmarshalReview(body, &review, objectFor) {
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
	return review.Request, checkOptions(review.Request)
}
