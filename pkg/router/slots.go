package router

import (
	"slices"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
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

// isSystem reports whether the request comes from a node or from a component of the
// control plane. The cluster needs these requests to recover.
func isSystem(user authenticationv1.UserInfo) bool {
	switch user.Username {
	case "system:kube-controller-manager", "system:kube-scheduler":
		return true
	}
	return strings.HasPrefix(user.Username, serviceAccountPrefix+"kube-system:") || isNode(user)
}

func isNode(user authenticationv1.UserInfo) bool { return slices.Contains(user.Groups, nodes) }

// chooses reports whether a user may want requests to fail, so that the failure policy decides. The components of the control
// plane do not, and the cluster may need that it decides.
func chooses(user authenticationv1.UserInfo) bool { return !isSystem(user) || isNode(user) }
