package writes

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestLimit has writes that wait for others, and more than may wait.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 2
		l := NewLimit(places)
		var made atomic.Int64
		proceed, ended := make(chan struct{}), make(chan error, places+maxWaiting)
		write := func() error {
			made.Add(1)
			<-proceed
			return context.Canceled
		}
		for range places + maxWaiting {
			go func() { ended <- l.Do(t.Context(), write) }()
		}
		synctest.Wait()
		if got := made.Load(); got != places {
			t.Errorf("Got %d writes at a time, want %d", got, places)
		}
		if err := l.Do(t.Context(), write); !errors.Is(err, ErrBusy) || made.Load() != places {
			t.Errorf("Got %v while %d writes wait, want %v at once", err, maxWaiting, ErrBusy)
		}
		close(proceed)
		for range places + maxWaiting {
			if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, ErrBusy) {
				t.Errorf("Got %v, want the error of the write", err)
			}
		}
		if err := l.Do(t.Context(), func() error { return nil }); err != nil {
			t.Errorf("Got %v when no write waits, want none", err)
		}
	})
}

// TestAWriteThatEndsBeforeItsTurn waits for others until its context ends.
func TestAWriteThatEndsBeforeItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimit(1)
		proceed := make(chan struct{})
		go func() {
			_ = l.Do(t.Context(), func() error {
				<-proceed
				return nil
			})
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		write := func() error {
			t.Error("The write was made")
			return nil
		}
		if err := l.Do(ctx, write); !errors.Is(err, ErrBusy) || !errors.Is(err, context.Canceled) {
			t.Errorf("Got %v, want %v with the reason", err, ErrBusy)
		}
		close(proceed)
		synctest.Wait()
		for range maxWaiting + 1 {
			if err := l.Do(t.Context(), func() error { return nil }); err != nil {
				t.Fatalf("Got %v, want that the write that ended has no place", err)
			}
		}
	})
}
