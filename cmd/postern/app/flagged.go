package app

import "sync/atomic"

// flagged is a check that passes once it is set.
type flagged struct {
	done   atomic.Bool
	reason error
}

func (f *flagged) set() { f.done.Store(true) }

func (f *flagged) ready() error {
	if f.done.Load() {
		return nil
	}
	return f.reason
}
