package router

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/reads"
)

// lease holds the part of the router's limits that one request uses. The goroutine
// that serves the request uses it, and while the AdmitFunc runs, the goroutine of the
// AdmitFunc.
type lease struct {
	half *half
	// source is the address that the body comes from. body is the number of bytes
	// held for the body and the envelope, and later for the answer.
	source string
	body   int64
	// memory is the number of bytes held for the decision, of which isBound says that
	// the service named them before the envelope was read. It counts against the class
	// of the request.
	memory  int64
	isBound bool
	class   string
	// reads holds the memory of what the decision reads. It is nil until the decision begins.
	reads *account
	// isSystem is the class of the slot.
	isSystem, slot bool
	// isChosen says that whoever sends the request may want it to fail: a user chooses how many requests there are.
	isChosen bool
	// waitEnd is when a request that may be chosen stops waiting for calls of others.
	waitEnd time.Time
	// delayed is true if memory was not available at once.
	delayed atomic.Bool
}

// The classes of requests.
const (
	systemClass   = "system"
	ordinaryClass = "ordinary"
)

// growBody takes n more bytes for the body. One source may hold half of the bytes
// for bodies, so that a slow sender cannot block all others. A body that needs more takes most of that half, and leaves the rest to other
// requests of the source.
func (l *lease) growBody(ctx context.Context, n int64) error {
	bodies := l.half.router.bodies
	if bodies.size > 0 {
		n = min(n, max(0, bodies.size/2-bodies.size/16-l.body))
	}
	take := bodies.take
	if l.body > 0 {
		take = bodies.grow
	}
	if !take(ctx, &l.delayed, l.source, bodies.size/2, n) {
		return l.tooMany("too_many_bytes", "too many bytes of requests are held")
	}
	l.body += n
	l.half.router.metrics.holds(n)
	return nil
}

// tooMany returns the rejection of a request because of what other requests hold. Users choose how many requests they send.
func (l *lease) tooMany(reason, sentence string) *rejection {
	return &rejection{code: http.StatusTooManyRequests, reason: reason, sentence: sentence, isChosen: l.isChosen}
}

// takeBound takes the bound that the service has for a review, if memory is ample. The
// class of the request is not known yet, and does not matter then.
func (l *lease) takeBound(review []byte) bool {
	r := l.half.router
	if l.half.objects.Bound == nil {
		return false
	}
	n := l.half.objects.Bound(review)
	if !r.memory.takeOfPlenty(ordinaryClass, n) {
		return false
	}
	l.class, l.memory, l.isBound = ordinaryClass, n, true
	r.metrics.holds(n)
	return true
}

// take takes the memory and the slot that deciding a request needs. It takes the
// slot last, so that a request that waits for memory holds no slot.
func (l *lease) take(ctx context.Context, ar *admissionv1.AdmissionRequest) error {
	r := l.half.router
	l.isSystem, l.isChosen = r.isSystem(ar.UserInfo), !r.isComponent(ar.UserInfo)
	if !l.isBound {
		if err := l.takeWeight(ctx, ar); err != nil {
			return err
		}
	}
	if !r.slots.take(l.isSystem) {
		return l.tooMany("too_many", "too many requests are being decided")
	}
	l.reads = r.newAccount(r.tenantOf(ar, l.isSystem), l.memory)
	if l.isChosen {
		l.reads.waitEnd = l.waitEnd
	}
	l.slot = true
	r.metrics.began(l.half)
	return nil
}

// classOf returns a class of requests, and how much memory its requests may hold.
func (r *Router) classOf(isSystem bool) (class string, ceiling int64) {
	if isSystem {
		return systemClass, r.memory.size
	}
	return ordinaryClass, r.memory.size - r.memory.size/systemShare
}

// takeWeight takes the memory that deciding a request needs.
func (l *lease) takeWeight(ctx context.Context, ar *admissionv1.AdmissionRequest) error {
	r := l.half.router
	class, ceiling := r.classOf(l.isSystem)
	l.class = class
	n := l.half.weight(ar)
	if r.memory.size > 0 {
		// A request that needs more than the limit of its class takes the whole
		// limit.
		n = min(n, ceiling)
	}
	if !r.memory.take(ctx, &l.delayed, l.class, ceiling, n) {
		return l.tooMany("too_many_bytes", "too many bytes of requests are held")
	}
	l.memory = n
	r.metrics.holds(n)
	return nil
}

// endDecision gives the slot back. The memory stays held, because the answer is not sent yet.
func (l *lease) endDecision() {
	if l.slot {
		l.half.router.slots.release(l.isSystem)
		l.half.router.calls.end(l.reads.share)
		l.half.router.metrics.ended(l.half)
		l.slot = false
	}
}

// holdAnswer holds n bytes for an answer of the source, instead of its body and the memory of the decision. The answer
// may hold what the body held. An answer that is larger has the same limit and the same patience as a body. The memory of
// the decision stays held while it waits.
func (l *lease) holdAnswer(ctx context.Context, n int64) *rejection {
	bodies := l.half.router.bodies
	if n > l.body {
		l.giveBody()
		ceiling := bodies.size / 2
		if bodies.size > 0 {
			// An answer that needs more than the limit of a source takes the whole limit.
			n = min(n, ceiling)
		}
		if !bodies.take(ctx, &l.delayed, l.source, ceiling, n) {
			return l.tooMany("too_many_bytes", "too many bytes of answers are held")
		}
		l.body = n
		l.half.router.metrics.holds(n)
	}
	l.giveMemory()
	return nil
}

// explain returns the answer to a request that could not be decided, if what other requests did is the reason.
func (l *lease) explain(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*rejection](err); ok || l.reads == nil {
		return err
	}
	held := l.tooMany("too_many_bytes", reads.ErrHeld.Error())
	refused, queued := l.reads.refused.Load(), l.reads.queued.Load()
	if !l.isChosen && !queued {
		// After the deadline, the API server does not repeat the request.
		if refused && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Could not decide a request, and lacked memory for what it reads", "err", shortError(err))
			return held
		}
		return err
	}
	waited := l.reads.waited.Load()
	if !waited && !refused && !queued && !l.delayed.Load() && !l.reads.delayed.Load() {
		return err
	}
	// The reason may be another one: the requests of the tenant wait for an API server that is away.
	if suppressed, ok := l.half.router.failures.Allow(); ok {
		klog.FromContext(ctx).Error(shortError(err), "Denied a request that could not be decided and waited for others", "suppressed", suppressed)
	}
	var rej *rejection
	switch {
	case waited:
		rej = tooManyCalls(l.reads.tenant)
	case refused:
		rej = held
	default:
		rej = l.tooMany("waited", "the request had to wait and could not be decided, repeat it later")
	}
	// Users make the control plane send requests, too.
	rej.isChosen, rej.backsOff = true, !l.isChosen
	return rej
}

// release gives everything back. It may be called more than once.
func (l *lease) release() {
	l.giveBody()
	l.giveMemory()
	l.endDecision()
}

func (l *lease) giveBody() {
	l.half.router.bodies.give(l.source, l.body)
	l.half.router.metrics.holds(-l.body)
	l.body = 0
}

func (l *lease) giveMemory() {
	if l.reads != nil {
		l.reads.endRequest()
	}
	l.half.router.memory.give(l.class, l.memory)
	l.half.router.metrics.holds(-l.memory)
	l.memory = 0
}
