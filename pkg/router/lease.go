package router

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
)

// lease holds the part of the router's limits that one request uses. Only the
// goroutine that serves the request uses it.
type lease struct {
	half *half
	// source is the address that the body comes from. body is the number of bytes
	// held for it.
	source string
	body   int64
	// memory is the number of bytes held for the decision, of which isBound says that
	// the service named them before the envelope was read. It counts against the class
	// of the request.
	memory  int64
	isBound bool
	class   string
	// isSystem is the class of the slot.
	isSystem, slot bool
}

// The classes of requests.
const (
	systemClass   = "system"
	ordinaryClass = "ordinary"
)

// growBody takes n more bytes for the body. One source may hold half of the bytes
// for bodies, so that a slow sender cannot block all others.
func (l *lease) growBody(ctx context.Context, n int64) error {
	bodies := l.half.router.bodies
	take := bodies.take
	if l.body > 0 {
		take = bodies.grow
	}
	if !take(ctx, l.source, bodies.size/2, n) {
		return tooMany("too_many_bytes", "too many bytes of requests are held")
	}
	l.body += n
	l.half.router.metrics.holds(n)
	return nil
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
	l.isSystem = isSystem(ar.UserInfo)
	if !l.isBound {
		if err := l.takeWeight(ctx, ar); err != nil {
			return err
		}
	}
	if !r.slots.take(l.isSystem) {
		return tooMany("too_many", "too many requests are being decided")
	}
	l.slot = true
	r.metrics.began(l.half)
	return nil
}

// takeWeight takes the memory that deciding a request needs.
func (l *lease) takeWeight(ctx context.Context, ar *admissionv1.AdmissionRequest) error {
	r := l.half.router
	l.class = ordinaryClass
	ceiling := r.memory.size - r.memory.size/systemShare
	if l.isSystem {
		l.class, ceiling = systemClass, r.memory.size
	}
	n := l.half.weight(ar)
	if r.memory.size > 0 {
		// A request that needs more than the limit of its class takes the whole
		// limit.
		n = min(n, ceiling)
	}
	if !r.memory.take(ctx, l.class, ceiling, n) {
		return tooMany("too_many_bytes", "too many bytes of requests are held")
	}
	l.memory = n
	r.metrics.holds(n)
	return nil
}

// release gives everything back. It may be called more than once.
func (l *lease) release() {
	r := l.half.router
	r.bodies.give(l.source, l.body)
	r.memory.give(l.class, l.memory)
	r.metrics.holds(-l.body - l.memory)
	l.body, l.memory = 0, 0
	if l.slot {
		r.slots.release(l.isSystem)
		r.metrics.ended(l.half)
		l.slot = false
	}
}
