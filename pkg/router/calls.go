package router

import (
	"context"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/postern-dev/postern/internal/reads"
)

const (
	// maxCalls is how many calls of the API server the requests of one tenant make at a time. A call takes some milliseconds, so
	// these are thousands per second. The calls of a tenant from three replicas leave a part of the 82 seats free that
	// installer/flowcontrol.yaml reserves in an API server with default flags.
	maxCalls = 16
	// waitingShare is the part of the requests in progress that may wait for others of their tenant, before those of tenants that
	// have an equal part of it are refused.
	waitingShare = 4
)

// tenant is whose requests share calls.
type tenant struct {
	kind, name string
	// isSystem is the class of the requests. Users in a namespace must not keep controllers waiting.
	isSystem bool
}

// The kinds of tenants.
const (
	namespaceTenant = "namespace"
	nodeTenant      = "node"
	userTenant      = "user"
)

// tenantOf returns the tenant of a request. It is the namespace, because who may write in a namespace can have any number of
// users: its service accounts. Nodes write in all namespaces, and so does Postern itself, whose requests must not wait for those
// that they are sent for. The namespace of a request for a Namespace is a name that its user chooses.
func (r *Router) tenantOf(ar *admissionv1.AdmissionRequest, isSystem bool) tenant {
	user := ar.UserInfo.Username
	home, isAccount := homeOf(user)
	switch {
	case isNode(ar.UserInfo):
		return tenant{nodeTenant, user, isSystem}
	case isAccount && home == r.namespace:
		return tenant{userTenant, user, isSystem}
	case ar.Namespace != "" && (ar.Resource.Group != "" || ar.Resource.Resource != "namespaces"):
		return tenant{namespaceTenant, ar.Namespace, isSystem}
	case isAccount:
		return tenant{namespaceTenant, home, isSystem}
	}
	return tenant{userTenant, user, isSystem}
}

// calls bounds the calls of the API server that the requests of each tenant make at a time. Users choose how many calls their
// requests need, and must not keep the requests of others waiting.
type calls struct {
	// maxWaiting is how many requests of all tenants may wait, before those of tenants that have an equal part of it are refused.
	// A tenant with less may always wait, so that no other one keeps it from that. 0 means no limit.
	maxWaiting int

	mu      sync.Mutex
	tenants map[tenant]*queue
	// waiting is how many requests have waited and are not over, and waitingTenants how many tenants they are of.
	waiting, waitingTenants int
}

// queue has the calls of one tenant.
type queue struct {
	places chan struct{}
	// calls is how many calls have or wait for a place, and waiting how many requests have waited and are not over.
	calls, waiting int
}

// progress is what calls knows of one request.
type progress struct {
	// hasCalled is true after a first call. isWaiting is true if the request has waited, and is not over.
	hasCalled, isWaiting, isOver bool
}

// take takes a place for a call of a request. It waits until one is free, ctx ends, or the request may not wait any longer, unless
// too many requests wait already.
func (c *calls) take(ctx context.Context, s *share) error {
	c.mu.Lock()
	q := c.tenants[s.tenant]
	if q == nil {
		q = &queue{places: make(chan struct{}, maxCalls)}
		c.tenants[s.tenant] = q
	}
	select {
	case q.places <- struct{}{}:
		q.calls++
		s.progress.hasCalled = true
		c.mu.Unlock()
		return nil
	default:
	}
	s.waited.Store(true)
	if !c.mayWait(q, s) {
		c.mu.Unlock()
		return reads.ErrBusy
	}
	q.calls++
	c.mu.Unlock()
	var tooLong <-chan time.Time
	if !s.waitEnd.IsZero() {
		tooLong = time.After(time.Until(s.waitEnd))
	}
	err := reads.ErrBusy
	select {
	case q.places <- struct{}{}:
		return nil
	case <-tooLong:
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q.calls--
	c.forget(s.tenant, q)
	return err
}

// mayWait counts a request that has to wait, until it is over. It is not refused after its first call, as long as it may wait: if it
// had to compete for each call, many requests would be refused after most of their work.
func (c *calls) mayWait(q *queue, s *share) bool {
	if s.progress.isWaiting || s.progress.isOver {
		return true
	}
	tenants := c.waitingTenants
	if q.waiting == 0 {
		tenants++
	}
	if !s.progress.hasCalled && c.maxWaiting > 0 && c.waiting >= c.maxWaiting && q.waiting >= max(1, c.maxWaiting/tenants) {
		return false
	}
	s.progress.isWaiting = true
	c.waitingTenants = tenants
	c.waiting++
	q.waiting++
	return true
}

// give gives a place back.
func (c *calls) give(t tenant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.tenants[t]
	<-q.places
	q.calls--
	c.forget(t, q)
}

// end ends a request. Calls that it makes later count for no request.
func (c *calls) end(s *share) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.progress.isWaiting {
		q := c.tenants[s.tenant]
		c.waiting--
		if q.waiting--; q.waiting == 0 {
			c.waitingTenants--
		}
		c.forget(s.tenant, q)
	}
	s.progress.isWaiting, s.progress.isOver = false, true
}

// forget forgets a tenant without calls.
func (c *calls) forget(t tenant, q *queue) {
	if q.calls == 0 && q.waiting == 0 {
		delete(c.tenants, t)
	}
}
