package router

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/lazylog"
	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/internal/shorttext"
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
	// timeout is the registered time-out.
	timeout time.Duration
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
	held := &lease{half: h, source: sourceOf(req), waitEnd: start.Add(timeout / waitingPart)}
	ar, err := h.read(ctx, w, req, held)
	if err != nil {
		held.release()
		h.rejectEarly(ctx, w, start, timeout, err)
		return
	}
	about := subjectOf(ar)
	// Without a logger in the context, there is none that could get the values.
	ctx = lazylog.WithValues(klog.NewContext(ctx, klog.FromContext(ctx)), func() []any { return about.logValues(h) })
	resp, err := h.decide(ctx, ar, held)
	if req.Context().Err() != nil {
		closeConnection(w, req)
	}
	if err == nil {
		if resp, err = finish(resp, about.uid, h.phase, h.router.isComponent(ar.UserInfo)); err != nil {
			held.release()
		}
	}
	if err != nil {
		err = held.explain(ctx, err)
	}
	if timeout < h.timeout {
		h.router.metrics.short(h)
		if err != nil && !isChosen(err) {
			resp, err = h.denyShort(ctx, about, timeout, err), nil
			// An AdmitFunc that has not returned still uses the lease.
			held = &lease{half: h, source: held.source}
		}
	}
	if rej, ok := errors.AsType[*rejection](err); ok {
		rej.uid = about.uid
		h.reject(ctx, w, start, rej)
		return
	}
	if err != nil {
		h.fail(ctx, w, about, start, err)
		return
	}
	h.answer(ctx, w, &reply{subject: about, start: start, held: held}, resp)
}

// subject is what the router tells of a request in the log and in the metrics. It keeps no object: the text and the
// objects of a request are garbage when its decision ends, although the answer may take seconds to send.
type subject struct {
	uid                                    types.UID
	operation                              admissionv1.Operation
	resource, subResource, namespace, name string
}

func subjectOf(ar *admissionv1.AdmissionRequest) *subject {
	return &subject{ar.UID, ar.Operation, ar.Resource.Resource, ar.SubResource, ar.Namespace, ar.Name}
}

// maxLogged is the most bytes of a text of a request in the log, which is that of a name. The sender chooses all of them, and the
// API server has not checked the name of an object before the mutating phase.
const maxLogged = 253

// maxLoggedError is the most bytes of an error in the log. It may quote the object.
const maxLoggedError = 2 << 10

func shortError(err error) error { return errors.New(shorttext.Line(err.Error(), maxLoggedError)) }

func (s *subject) logValues(h *half) []any {
	short := func(text string) string { return shorttext.Line(text, maxLogged) }
	// klog escapes nothing in an ObjectRef, and the API server checks a name after the mutating phase.
	object := short(s.name)
	if s.namespace != "" {
		object = short(s.namespace) + "/" + object
	}
	return []any{
		"path", h.service + "/" + h.phase, "uid", short(string(s.uid)), "operation", short(string(s.operation)),
		"resource", short(s.resource), "subresource", short(s.subResource), "object", object,
	}
}

// read reads and checks the envelope of a request.
func (h *half) read(ctx context.Context, w http.ResponseWriter, req *http.Request, held *lease) (*admissionv1.AdmissionRequest, error) {
	if err := checkHeaders(w, req); err != nil {
		return nil, err
	}
	body, err := held.readBody(ctx, w, req)
	var ar *admissionv1.AdmissionRequest
	if err == nil {
		err = h.guard(ctx, func() error {
			ar, err = h.decode(ctx, body, held)
			return err
		})
	}
	if rej, ok := errors.AsType[*rejection](err); ok {
		var isComponent bool
		rej.uid, isComponent = h.router.readHead(body)
		isBusy := rej.code == http.StatusTooManyRequests || rej.reason == reasonSlow && held.delayed.Load()
		rej.isChosen = rej.isChosen || isBusy && !isComponent
	}
	return ar, err
}

// guard calls f. It returns a rejection if f panics.
func (h *half) guard(ctx context.Context, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			h.router.metrics.panicked(h)
			h.logPanic(ctx, p)
			err = panicked()
		}
	}()
	return f()
}

// decode decodes the body of a request.
func (h *half) decode(ctx context.Context, body []byte, held *lease) (*admissionv1.AdmissionRequest, error) {
	if held.takeBound(body) && held.memory <= plainBytes {
		// The bound includes the envelope.
		return decodeReview(body, h.objects.New)
	}
	if err := held.takeEnvelope(ctx, body); err != nil {
		return nil, err
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

// waitingPart is the part of its time-out in which a request may wait for the calls of others. The API server counts from before
// the connection. With 400 clients on two processors, Postern read the header of a request up to 4.5 s later, and a denial at the
// end of the time-out came too late.
const waitingPart = 2

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

// decide takes the resources that the request needs, and decides the request. Without
// an error, the memory of the request stays held for the answer. After an error, the
// caller does not use the lease: it is released, or an AdmitFunc still uses it.
func (h *half) decide(ctx context.Context, ar *admissionv1.AdmissionRequest, held *lease) (*admissionv1.AdmissionResponse, error) {
	if resp := denyOutsized(ar); resp != nil {
		return resp, nil
	}
	if err := h.guard(ctx, func() error { return held.take(ctx, ar) }); err != nil {
		held.release()
		return nil, err
	}
	return h.run(ctx, ar, held)
}

// run calls the AdmitFunc and returns at the deadline, even if the AdmitFunc does
// not. The AdmitFunc runs in its own goroutine, so that neither a panic nor a call
// that ignores its context keeps the API server waiting. If the request does not wait
// for its result any more, the resources of the request are released when the AdmitFunc
// returns, which may be long after the answer.
func (h *half) run(ctx context.Context, ar *admissionv1.AdmissionRequest, held *lease) (*admissionv1.AdmissionResponse, error) {
	type result struct {
		resp *admissionv1.AdmissionResponse
		err  error
	}
	done := make(chan result)
	go func() {
		var r result
		// Deferred, because an AdmitFunc may end its goroutine.
		defer func() {
			held.endDecision()
			select {
			case done <- r: // The receiver uses the lease from here on.
			case <-ctx.Done():
				held.release()
			}
		}()
		reserveStack(0)
		r.err = h.guard(ctx, func() error {
			r.resp = h.admit(reads.NewContext(ctx, held.reads), ar)
			return nil
		})
	}()
	select {
	case r := <-done:
		if r.err != nil {
			held.release()
		}
		return r.resp, r.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, &Failure{http.StatusGatewayTimeout, "the deadline of the request passed before it was decided"}
		}
		return nil, &Failure{http.StatusServiceUnavailable, "the request was canceled"}
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
		klog.FromContext(ctx).Error(shortError(fmt.Errorf("panic: %v", p)), "Admission service panicked", "stack", string(debug.Stack()), "suppressed", suppressed)
	}
}
