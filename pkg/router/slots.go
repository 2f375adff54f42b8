package router

import (
	"slices"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/postern-dev/postern/internal/users"
)

// slots bound the number of requests that are decided at a time.
type slots struct {
	// limit is the number of slots. 0 means no limit.
	limit int

	mu                 sync.Mutex
	used, usedOrdinary int
}

// take takes a slot. It returns false at once if no slot is free for that class of
// requests.
func (s *slots) take(system bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit > 0 && (s.used >= s.limit || !system && s.usedOrdinary >= s.limit-s.limit/systemShare) {
		return false
	}
	s.used++
	if !system {
		s.usedOrdinary++
	}
	return true
}

// release gives a slot back.
func (s *slots) release(system bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if !system {
		s.usedOrdinary--
	}
}

// nodes is the group of all nodes.
const nodes = "system:nodes"

// isSystem reports whether the request comes from a node or from a component. The cluster needs these requests to recover.
func (r *Router) isSystem(user authenticationv1.UserInfo) bool {
	return r.isComponent(user) || isNode(user)
}

func isNode(user authenticationv1.UserInfo) bool { return slices.Contains(user.Groups, nodes) }

// isComponent reports whether the request comes from a component of the control plane, or from Postern itself, which sends some
// while it decides others. They do not want requests to fail. Anybody else may, because the failure policy then decides.
func (r *Router) isComponent(user authenticationv1.UserInfo) bool {
	home, ok := users.HomeOf(user.Username)
	return users.IsControlPlane(user.Username) || ok && home == r.namespace
}
