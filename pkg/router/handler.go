package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/klog/v2"
)

const (
	// PhaseMutate is the mutating half of a service.
	PhaseMutate = "mutate"
	// PhaseValidate is the validating half.
	PhaseValidate = "validate"

	// defaultTimeout is the API server's own default, for senders that name none.
	defaultTimeout = 10 * time.Second
	// maxTimeout is the most that a webhook configuration may ask for.
	maxTimeout = 30 * time.Second
)

// half is one half of a service at work.
type half struct {
	router         *Router
	service, phase string
	admit          AdmitFunc
}

// verdict labels what became of a request.
type verdict string

const (
	verdictAllowed  verdict = "allowed"
	verdictDenied   verdict = "denied"
	verdictFailed   verdict = "failed"
	verdictRejected verdict = "rejected"
)

func (h *half) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	start := time.Now()
	m := h.router.metrics
	defer m.begin(h)()
	timeout, err := requestTimeout(req)
	if err != nil {
		h.reject(req.Context(), w, start, err)
		return
	}
	ctx, cancel := context.WithDeadline(req.Context(), start.Add(timeout-answerReserve(timeout)))
	defer cancel()
	// A body that trickles in must not outlive the deadline either. Where the
	// connection cannot do that, the server's own time-outs hold.
	_ = http.NewResponseController(w).SetReadDeadline(start.Add(timeout))
	ar, err := readReview(w, req)
	if err != nil {
		h.reject(ctx, w, start, err)
		return
	}
	log := klog.FromContext(ctx).WithValues("path", req.URL.Path, "uid", ar.UID, "operation", ar.Operation,
		"resource", ar.Resource.Resource, "subresource", ar.SubResource, "object", klog.KRef(ar.Namespace, ar.Name))
	resp, err := h.decide(klog.NewContext(ctx, log), ar)
	if err == nil {
		resp, err = finish(resp, ar, h.phase)
	}
	if err != nil {
		h.fail(w, log, ar, start, err)
		return
	}
	h.answer(w, log, ar, start, resp)
}

// answerReserve is how long before the API server's deadline ours is: the answer
// has to get there while somebody listens.
func answerReserve(timeout time.Duration) time.Duration {
	return min(timeout/10, 500*time.Millisecond)
}

func requestTimeout(req *http.Request) (time.Duration, error) {
	if req.URL.RawQuery == "" {
		return defaultTimeout, nil
	}
	value := req.URL.Query().Get("timeout")
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

// decide runs the AdmitFunc and returns at the deadline even if that does not.
// It has a goroutine of its own, so that neither a panic nor a call that ignores
// its context keeps the API server waiting.
func (h *half) decide(ctx context.Context, ar *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
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
				klog.FromContext(ctx).Error(fmt.Errorf("panic: %v", p), "Admission service panicked", "stack", string(debug.Stack()))
				r = result{err: &failure{http.StatusInternalServerError, "the admission service panicked, see its log"}}
			}
			done <- r
		}()
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

// reject answers a request whose envelope is wrong.
func (h *half) reject(ctx context.Context, w http.ResponseWriter, start time.Time, err error) {
	var rej *rejection
	if !errors.As(err, &rej) {
		rej = badRequest("other", "%v", err)
	}
	klog.FromContext(ctx).V(2).Info("Rejected a request", "path", h.service+"/"+h.phase, "code", rej.code, "reason", rej.sentence)
	h.router.metrics.rejected(h, rej.reason)
	h.router.metrics.request(h, nil, rej.code, verdictRejected, start)
	http.Error(w, rej.sentence, rej.code)
}

// fail answers a request that could not be decided.
func (h *half) fail(w http.ResponseWriter, log klog.Logger, ar *admissionv1.AdmissionRequest, start time.Time, err error) {
	code := http.StatusInternalServerError
	if f, ok := errors.AsType[*failure](err); ok {
		code = f.code
	}
	log.Error(err, "Could not decide a request", "code", code)
	h.router.metrics.request(h, ar, code, verdictFailed, start)
	http.Error(w, err.Error(), code)
}

func (h *half) answer(w http.ResponseWriter, log klog.Logger, ar *admissionv1.AdmissionRequest, start time.Time, resp *admissionv1.AdmissionResponse) {
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: reviewType, Response: resp})
	if err != nil {
		h.fail(w, log, ar, start, fmt.Errorf("encoding the answer: %w", err))
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if _, err := w.Write(body); err != nil {
		log.V(2).Info("Could not send an answer", "err", err)
	}
	v := verdictAllowed
	if !resp.Allowed {
		v = verdictDenied
	}
	h.router.metrics.request(h, ar, http.StatusOK, v, start)
	if len(resp.Patch) > 0 {
		h.router.metrics.patched(h, len(resp.Patch))
	}
}
