package app

import "sync"

// flagged is a readiness check that passes once set is called.
type flagged struct {
	mu     sync.Mutex
	passed chan struct{}
	reason error
}

func newFlagged(reason error) *flagged { return &flagged{reason: reason, passed: make(chan struct{})} }

// set makes the check pass. It is called once.
func (f *flagged) set() { close(f.passed) }

// done returns a channel that is closed when the check passes.
func (f *flagged) done() <-chan struct{} { return f.passed }

// because sets the reason for which the check does not pass yet.
func (f *flagged) because(reason error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reason = reason
}

func (f *flagged) ready() error {
	select {
	case <-f.passed:
		return nil
	default:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reason
}
