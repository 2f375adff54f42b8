package router

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/lazylog"
)

const (
	// PhaseMutate is the mutating half of a service.
	PhaseMutate = "mutate"
	// PhaseValidate is the validating half.
	PhaseValidate = "validate"

	// defaultTimeout is the default of the API server. It applies if the request
	// has no timeout.
	defaultTimeout = 10 * time.Second
	// maxTimeout is the longest timeout that a webhook configuration may have.
	maxTimeout = 30 * time.Second
)

// half is the mutating or the validating half of a service.
type half struct {
	router         *Router
	service, phase string
	admit          AdmitFunc
	objects        Objects
	series         func() series
}

// verdict is the metric label for the outcome of a request.
type verdict string

const (
	verdictAllowed  verdict = "allowed"
	verdictDenied   verdict = "denied"
	verdictFailed   verdict = "failed"
	verdictRejected verdict = "rejected"
)

func (h *half) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	start := time.Now()
	timeout, err := requestTimeout(req)
	if err != nil {
		h.reject(req.Context(), w, start, err)
		return
	}
	ctx, cancel := context.WithDeadline(req.Context(), start.Add(timeout-answerReserve(timeout)))
	defer cancel()
	held := &lease{half: h, source: sourceOf(req)}
	ar, err := h.read(ctx, w, req, held)
	if err != nil {
		held.release()
		h.reject(ctx, w, start, err)
		return
	}
	// Without a logger in the context, there is none that could get the values.
	ctx = lazylog.WithValues(klog.NewContext(ctx, klog.FromContext(ctx)), func() []any {
		return []any{
			"path", h.service + "/" + h.phase, "uid", ar.UID, "operation", ar.Operation,
			"resource", ar.Resource.Resource, "subresource", ar.SubResource, "object", klog.KRef(ar.Namespace, ar.Name),
		}
	})
	resp, err := h.decide(ctx, ar, held)
	if req.Context().Err() != nil {
		closeConnection(w, req)
	}
	if err == nil {
		resp, err = finish(resp, ar, h.phase)
	}
	if rej, ok := errors.AsType[*rejection](err); ok {
		h.reject(ctx, w, start, rej)
		return
	}
	if err != nil {
		h.fail(ctx, w, ar, start, err)
		return
	}
	h.answer(ctx, w, ar, start, resp)
}

// read reads and checks the envelope of a request.
func (h *half) read(ctx context.Context, w http.ResponseWriter, req *http.Request, held *lease) (*admissionv1.AdmissionRequest, error) {
	if err := checkHeaders(w, req); err != nil {
		return nil, err
	}
	body, err := held.readBody(ctx, w, req)
	if err != nil {
		return nil, err
	}
	if held.takeBound(body) && held.memory <= plainBytes {
		return decodeReview(body, h.objects.New)
	}
	return decodeReview(body, nil)
}

// sourceOf returns the address that a request comes from.
func sourceOf(req *http.Request) string {
	host, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		return req.RemoteAddr
	}
	return host
}

// answerReserve is the time by which Postern's deadline precedes the API server's
// deadline. The answer must arrive before the API server stops waiting.
func answerReserve(timeout time.Duration) time.Duration {
	return min(timeout/10, 500*time.Millisecond)
}

func requestTimeout(req *http.Request) (time.Duration, error) {
	// This is what an API server sends. Query allocates a map.
	value, plain := strings.CutPrefix(req.URL.RawQuery, "timeout=")
	if !plain || strings.ContainsAny(value, "%&+;") {
		value = req.URL.Query().Get("timeout")
	}
	if value == "" {
		return defaultTimeout, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return 0, badRequest("timeout", "timeout %q is not a positive duration", value)
	}
	return min(d, maxTimeout), nil
}

// failure is a request that could not be decided.
type failure struct {
	code  int
	cause string
}

func (e *failure) Error() string { return e.cause }

// decide takes the resources that the request needs, and decides the request.
func (h *half) decide(ctx context.Context, ar *admissionv1.AdmissionRequest, held *lease) (*admissionv1.AdmissionResponse, error) {
	if resp := denyOutsized(ar); resp != nil {
		held.release()
		return resp, nil
	}
	if err := held.take(ctx, ar); err != nil {
		held.release()
		return nil, err
	}
	return h.run(ctx, ar, held)
}

// run calls the AdmitFunc and returns at the deadline, even if the AdmitFunc does
// not. The AdmitFunc runs in its own goroutine, so that neither a panic nor a call
// that ignores its context keeps the API server waiting. The resources of the
// request are released when the AdmitFunc returns, which may be long after the
// answer.
func (h *half) run(ctx context.Context, ar *admissionv1.AdmissionRequest, held *lease) (*admissionv1.AdmissionResponse, error) {
	type result struct {
		resp *admissionv1.AdmissionResponse
		err  error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil {
				h.router.metrics.panicked(h)
				h.logPanic(ctx, p)
				r = result{err: &failure{http.StatusInternalServerError, "the admission service panicked, see its log"}}
			}
			held.release()
			done <- r
		}()
		reserveStack(0)
		r.resp = h.admit(ctx, ar)
	}()
	select {
	case r := <-done:
		return r.resp, r.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, &failure{http.StatusGatewayTimeout, "the deadline of the request passed before it was decided"}
		}
		return nil, &failure{http.StatusServiceUnavailable, "the request was canceled"}
	}
}

// reserveStack grows the stack of the goroutine to the size that most decisions need. The runtime would reach it by
// doubling the stack several times, and copy more frames each time.
//
//go:noinline
func reserveStack(i int) byte {
	var frame [stackBytes]byte
	return frame[i]
}

const stackBytes = 14 << 10

func (h *half) logPanic(ctx context.Context, p any) {
	if suppressed, ok := h.router.panics.Allow(); ok {
		klog.FromContext(ctx).Error(fmt.Errorf("panic: %v", p), "Admission service panicked", "stack", string(debug.Stack()), "suppressed", suppressed)
	}
}

// reject answers a request with an invalid envelope.
func (h *half) reject(ctx context.Context, w http.ResponseWriter, start time.Time, err error) {
	var rej *rejection
	if !errors.As(err, &rej) {
		rej = badRequest("other", "%v", err)
	}
	if suppressed, ok := h.router.rejections.Allow(); ok {
		klog.FromContext(ctx).V(2).Info("Rejected a request", "path", h.service+"/"+h.phase, "code", rej.code, "reason", rej.sentence, "suppressed", suppressed)
	}
	h.router.metrics.rejected(h, rej.reason)
	h.router.metrics.request(h, nil, rej.code, verdictRejected, start)
	refuse(w, rej.sentence, rej.code)
}

// fail answers a request that could not be decided.
func (h *half) fail(ctx context.Context, w http.ResponseWriter, ar *admissionv1.AdmissionRequest, start time.Time, err error) {
	code := http.StatusInternalServerError
	if f, ok := errors.AsType[*failure](err); ok {
		code = f.code
	}
	if suppressed, ok := h.router.failures.Allow(); ok {
		klog.FromContext(ctx).Error(err, "Could not decide a request", "code", code, "suppressed", suppressed)
	}
	h.router.metrics.request(h, ar, code, verdictFailed, start)
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

func (h *half) answer(ctx context.Context, w http.ResponseWriter, ar *admissionv1.AdmissionRequest, start time.Time, resp *admissionv1.AdmissionResponse) {
	buffer := h.router.answers.Take()
	body, err := encodeReview(*buffer, resp)
	if err != nil {
		h.fail(ctx, w, ar, start, fmt.Errorf("encoding the answer: %w", err))
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if _, err := w.Write(body); err != nil {
		klog.FromContext(ctx).V(2).Info("Could not send an answer", "err", err)
	}
	*buffer = body
	h.router.answers.Give(buffer)
	v := verdictAllowed
	if !resp.Allowed {
		v = verdictDenied
	}
	h.router.metrics.request(h, ar, http.StatusOK, v, start)
	if len(resp.Patch) > 0 {
		h.router.metrics.patched(h, len(resp.Patch))
	}
}
