package router

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/shorttext"
)

// largeAnswer is the size beyond which an answer has a deadline of its own. Smaller answers fit into the buffers of a
// connection, and have the deadline of the server.
const largeAnswer = 64 << 10

// reply is a request that was decided and whose answer is not sent yet.
type reply struct {
	subject *subject
	start   time.Time
	held    *lease
}

// answer sends a response. It holds the memory of the answer until the answer is written.
func (h *half) answer(ctx context.Context, w http.ResponseWriter, to *reply, resp *admissionv1.AdmissionResponse) {
	defer to.held.release()
	buffer := h.router.answers.Take()
	body, err := encodeReview(*buffer, resp)
	if err != nil {
		h.fail(ctx, w, to.subject, to.start, fmt.Errorf("encoding the answer: %w", err))
		return
	}
	v, patch := verdictDenied, len(resp.Patch)
	if resp.Allowed {
		v = verdictAllowed
	}
	// The response is not used below this line: its patch is garbage while a slow client reads the answer.
	if v == verdictDenied {
		// A user must not fill the memory for answers to turn a denial into a failure.
		to.held.giveMemory()
	} else if rej := to.held.holdAnswer(ctx, int64(cap(body))); rej != nil {
		rej.uid = to.subject.uid
		h.reject(ctx, w, to.start, rej)
		return
	}
	if err := h.write(w, body); err != nil {
		// The buffer is not used again: an HTTP/2 connection may still read from it.
		klog.FromContext(ctx).V(2).Info("Could not send an answer", "err", err)
	} else {
		*buffer = body
		h.router.answers.Give(buffer)
	}
	h.router.metrics.request(h, to.subject, http.StatusOK, v, to.start)
	if patch > 0 {
		h.router.metrics.patched(h, patch)
	}
}

// write writes the body of an answer. Writing a large one may take as long as reading a body.
func (h *half) write(w http.ResponseWriter, body []byte) error {
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if len(body) <= largeAnswer {
		_, err := w.Write(body)
		return err
	}
	// If the connection does not support deadlines, the timeouts of the server apply.
	conn := http.NewResponseController(w)
	_ = conn.SetWriteDeadline(time.Now().Add(h.router.limits.readTimeout()))
	if _, err := w.Write(body); err != nil {
		return err
	}
	if err := conn.Flush(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	// The connection may serve another request, and a server without a timeout sets no other deadline for it.
	_ = conn.SetWriteDeadline(time.Time{})
	return nil
}

// reject answers a request that reached no AdmitFunc, or for which there was no memory.
func (h *half) reject(ctx context.Context, w http.ResponseWriter, start time.Time, err error) {
	var rej *rejection
	if !errors.As(err, &rej) {
		rej = badRequest("other", "%v", err)
	}
	if suppressed, ok := h.router.rejections.Allow(); ok {
		klog.FromContext(ctx).V(2).Info("Rejected a request", "path", h.service+"/"+h.phase, "code", rej.code, "reason", shorttext.Line(rej.sentence, maxLoggedError), "suppressed", suppressed)
	}
	h.router.metrics.rejected(h, rej.reason)
	if rej.isChosen && rej.uid != "" {
		h.answer(ctx, w, &reply{start: start, held: &lease{half: h}}, rej.denial())
		return
	}
	h.router.metrics.request(h, nil, rej.code, verdictRejected, start)
	refuse(w, rej.sentence, rej.code)
}

// rejectEarly is reject for a request that was not read. If it has less than the registered time-out, and its uid is known, it
// is denied: users choose the time in which its body does not arrive.
func (h *half) rejectEarly(ctx context.Context, w http.ResponseWriter, start time.Time, timeout time.Duration, err error) {
	rej, ok := errors.AsType[*rejection](err)
	if ok && rej.uid != "" && !rej.isChosen && timeout < h.timeout {
		h.router.metrics.short(h)
		h.router.metrics.rejected(h, rej.reason)
		h.answer(ctx, w, &reply{start: start, held: &lease{half: h}}, h.denyShort(ctx, &subject{uid: rej.uid}, timeout, err))
		return
	}
	h.reject(ctx, w, start, err)
}

// denyShort returns the response to a request that could not be decided and has less than the registered time-out. Users
// choose the time of their requests (?timeout=1s). If the failure policy decided and were Ignore, they could choose a time
// in which a plugin cannot decide.
func (h *half) denyShort(ctx context.Context, about *subject, timeout time.Duration, err error) *admissionv1.AdmissionResponse {
	if suppressed, ok := h.router.failures.Allow(); ok {
		klog.FromContext(ctx).Error(shortError(err), "Denied a request that could not be decided and has less time than the registered time-out",
			"timeout", timeout, "registered", h.timeout, "suppressed", suppressed)
	}
	return &admissionv1.AdmissionResponse{UID: about.uid, Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout,
		Message: fmt.Sprintf("the request could not be decided, and it has %v instead of %v: repeat it with more time: %v", timeout, h.timeout, err),
	}}
}

// fail answers a request that could not be decided.
func (h *half) fail(ctx context.Context, w http.ResponseWriter, about *subject, start time.Time, err error) {
	code := http.StatusInternalServerError
	if f, ok := errors.AsType[*Failure](err); ok {
		code = f.Code
	}
	if suppressed, ok := h.router.failures.Allow(); ok {
		klog.FromContext(ctx).Error(shortError(err), "Could not decide a request", "code", code, "suppressed", suppressed)
	}
	h.router.metrics.request(h, about, code, verdictFailed, start)
	refuse(w, err.Error(), code)
}

// refuse answers with an HTTP error. If a retry may succeed, the answer has a
// Retry-After header.
func refuse(w http.ResponseWriter, sentence string, code int) {
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", retryAfter)
	}
	http.Error(w, sentence, code)
}
