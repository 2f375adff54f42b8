package router

import "sync"

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
