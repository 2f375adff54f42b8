package writes

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/postern-dev/postern/internal/reads"
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
		second := make(chan error, 1)
		go func() { second <- l.Wait(t.Context(), write) }()
		synctest.Wait()
		if got := made.Load(); got != places {
			t.Errorf("Got %d writes at a time with a second one, want %d", got, places)
		}
		close(proceed)
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Errorf("Got %v for a second write, want that it waits", err)
		}
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

// TestUsersDoNotSeeTheAPIServer has the error of a client.
func TestUsersDoNotSeeTheAPIServer(t *testing.T) {
	l := NewLimit(1)
	err := l.Do(t.Context(), func() error {
		return &url.Error{Op: "Patch", URL: "https://192.0.2.1/api", Err: context.DeadlineExceeded}
	})
	if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "192.0.2.1") {
		t.Errorf("Got %v, want the error without an address", err)
	}
}

// account is an account that knows whether its request waits.
type account struct {
	reads.Detached

	waits bool
}

func (a *account) Queued() { a.waits = true }

// TestAWriteIsNoted covers the rest of the request, which may have little time left.
func TestAWriteIsNoted(t *testing.T) {
	a := &account{}
	if err := NewLimit(1).Do(reads.NewContext(t.Context(), a), func() error { return nil }); err != nil || !a.waits {
		t.Errorf("Got the error %v, and noted that the request waits: %t", err, a.waits)
	}
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
		if err := l.Do(ctx, write); !errors.Is(err, ErrBusy) {
			t.Errorf("Got %v, want %v", err, ErrBusy)
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
