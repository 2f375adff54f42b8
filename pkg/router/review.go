package router

import (
	"errors"
	"fmt"
	"mime"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/postern-dev/postern/internal/plainjson"
	"github.com/postern-dev/postern/internal/rawjson"
)

const (
	// maxObjectBytes is how long the JSON of an object that an API server can store may be. Each byte of protobuf becomes
	// six bytes of JSON in an escape such as \u003c, and seven in short items of lists whose fields have long names, such
	// as the peers of a NetworkPolicy.
	maxObjectBytes = 8 * storedBytes

	// MaxBodyBytes is the largest request body that is read. A review of an update carries an object twice. The rest is
	// for the user and the options.
	MaxBodyBytes = 2*maxObjectBytes + 1<<20

	// headBytes is enough for what precedes the objects in the review of a request of the control plane.
	headBytes = 4 << 10
)

// mediaType is the content type of reviews and answers.
const mediaType = "application/json"

var reviewType = metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}

// rejection is a request that never reaches an AdmitFunc: the HTTP status, the
// reason as a metric label, and one sentence for the sender.
type rejection struct {
	code     int
	reason   string
	sentence string
	// isChosen says that a user can choose what is wrong: the size and the content of an object, the names of groups, or how
	// many requests there are. A panic is a defect, and who finds an object that leads to it can choose it too. If the uid of the request is known, the
	// request is denied. With a failure, a user could choose the failure policy.
	isChosen bool
	// backsOff says that the sender is a component, which repeats what is denied with a backoff of its own. The API server sends
	// Retry-After for RetryAfterSeconds, and with it client-go keeps its caller, a worker of a controller, for up to ten attempts.
	backsOff bool
	// uid is the uid of the request, or "".
	uid types.UID
}

func (e *rejection) Error() string { return e.sentence }

// isChosen reports whether an error is a rejection of what a user can choose.
func isChosen(err error) bool {
	rej, ok := errors.AsType[*rejection](err)
	return ok && rej.isChosen
}

// denial returns the response to a request with a uid.
func (e *rejection) denial() *admissionv1.AdmissionResponse {
	reasons := map[int]metav1.StatusReason{
		http.StatusBadRequest: metav1.StatusReasonBadRequest, http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge,
		http.StatusInternalServerError: metav1.StatusReasonInternalError, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
		http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
	}
	status := &metav1.Status{
		Status: metav1.StatusFailure, Code: int32(e.code), Reason: reasons[e.code], Message: e.sentence, //nolint:gosec // an HTTP status
	}
	if e.code == http.StatusTooManyRequests && !e.backsOff {
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
	}
	return &admissionv1.AdmissionResponse{UID: e.uid, Result: status}
}

// readHead returns the uid of the request of a review, or "" if it is not at the start of the body, where API servers write it, and
// whether its user is a component. A user can make what precedes the user of the review longer than a head.
func (r *Router) readHead(body []byte) (uid types.UID, isComponent bool) {
	head := &rawjson.Reader{Text: body[:min(len(body), headBytes)], MaxDepth: rawjson.MaxDepth}
	text, ok := member(head, true, "request", "uid")
	if !ok || text[0] != '"' {
		return "", false
	}
	uid = types.UID(text.Text())
	var user authenticationv1.UserInfo
	if text, ok = member(head, false, "userInfo"); !ok || kjson.UnmarshalCaseSensitivePreserveInts(text, &user) != nil {
		return uid, false
	}
	return uid, r.isComponent(user)
}

// member reads the value at a path of names. If isNew is false, the reader is behind another member of the object.
func member(r *rawjson.Reader, isNew bool, path ...string) (rawjson.Value, bool) {
	for _, name := range path {
		if isNew && (r.Next() != '{' || !r.Enter()) || !find(r, isNew, name) {
			return nil, false
		}
		isNew = true
	}
	return r.Value()
}

// find reads an object up to the value of a member.
func find(r *rawjson.Reader, isNew bool, member string) bool {
	for ; r.More('}', isNew); isNew = false {
		name, ok := r.Name()
		if !ok || string(name) == member {
			return ok
		}
		if !r.Skip() {
			return false
		}
	}
	return false
}

func badRequest(reason, format string, args ...any) *rejection {
	return &rejection{code: http.StatusBadRequest, reason: reason, sentence: fmt.Sprintf(format, args...)}
}

func tooLarge(format string, args ...any) *rejection {
	return &rejection{code: http.StatusRequestEntityTooLarge, reason: "too_large", sentence: fmt.Sprintf(format, args...), isChosen: true}
}

func unsupported(format string, args ...any) *rejection {
	return &rejection{code: http.StatusUnsupportedMediaType, reason: "content_type", sentence: fmt.Sprintf(format, args...)}
}

// tooManyCalls is the rejection of a request that could not be decided in time because of other requests of its tenant. Whoever
// sends those must not choose the failure policy with them.
func tooManyCalls(of tenant) *rejection {
	return &rejection{
		code: http.StatusTooManyRequests, reason: "too_many_calls", isChosen: true,
		sentence: fmt.Sprintf("too many requests of %s %.253q need the API server, repeat it later", of.kind, of.name),
	}
}

// checkHeaders checks the headers of a request before its body is read. It returns
// why the request cannot be a review.
func checkHeaders(w http.ResponseWriter, req *http.Request) error {
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return &rejection{code: http.StatusMethodNotAllowed, reason: "method", sentence: fmt.Sprintf("method %s is not allowed, reviews are sent by POST", req.Method)}
	}
	ct := req.Header.Get("Content-Type")
	if !isMediaType(ct) {
		return unsupported("content type %q is not supported, want %s", ct, mediaType)
	}
	if enc := req.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return unsupported("content encoding %q is not supported, want none", enc)
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
			// The error may quote a number of any length.
			rej := badRequest("undecodable", "the body is not an AdmissionReview: %.1000v", err)
			rej.isChosen = true
			return nil, rej
		}
	}
	if review.TypeMeta != reviewType {
		return nil, badRequest("wrong_kind", "the body is kind %.253q of version %.253q, want %q of %q", review.Kind, review.APIVersion, reviewType.Kind, reviewType.APIVersion)
	}
	if review.Request == nil {
		return nil, badRequest("no_request", "the AdmissionReview has no request")
	}
	return review.Request, checkOptions(review.Request)
}
