package writes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/postern-dev/postern/internal/reads"
)

// TestLimit has writes that wait for others, and more than may wait.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 2
		l := NewLimit(places)
		var made atomic.Int64
		proceed, ended := make(chan struct{}), make(chan error)
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
		// Second writes do not wait for first ones, and more of them may wait.
		const second = places + maxWaiting + 1
		for range second {
			go func() { ended <- l.Then(t.Context(), write) }()
		}
		synctest.Wait()
		if got := made.Load(); got != 2*places {
			t.Errorf("Got %d writes at a time with second ones, want %d", got, 2*places)
		}
		close(proceed)
		for range places + maxWaiting + second {
			if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, ErrBusy) {
				t.Errorf("Got %v, want the error of the write", err)
			}
		}
		if err := l.Do(t.Context(), func() error { return nil }); err != nil {
			t.Errorf("Got %v when no write waits, want none", err)
		}
	})
}

// TestShown has errors of the network, and of an API server.
func TestShown(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}, Err: syscall.ECONNREFUSED}
	for _, err := range []error{
		&url.Error{Op: "Patch", URL: "https://192.0.2.1/api", Err: io.ErrUnexpectedEOF},
		&url.Error{Op: "Patch", URL: "https://192.0.2.1/api", Err: refused},
		fmt.Errorf("unexpected error when reading response body: %w", refused),
		fmt.Errorf("reading the pod: %w", context.DeadlineExceeded),
	} {
		if got := Shown(err).Error(); got != "there is no answer of the API server" {
			t.Errorf("%v: got %q", err, got)
		}
	}
	for _, err := range []error{
		apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "db-0", errors.New("it was modified")), ErrBusy, errNoTime, reads.ErrHeld,
	} {
		if got := Shown(fmt.Errorf("writing: %w", err)); !errors.Is(got, err) {
			t.Errorf("%v: got %v", err, got)
		}
	}
}

// TestAWriteIsNoted covers the rest of the request, which may have little time left.
func TestAWriteIsNoted(t *testing.T) {
	for name, do := range map[string]func(context.Context, func() error) error{"first": NewLimit(1).Do, "second": NewLimit(1).Then} {
		waits := false
		ctx := reads.WithQueued(reads.NewContext(t.Context(), reads.Detached(nil)), func() { waits = true })
		if err := do(ctx, func() error { return nil }); err != nil || !waits {
			t.Errorf("%s: got the error %v, and noted that the request waits: %t", name, err, waits)
		}
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		write := func() error {
			t.Error("The write was made")
			return nil
		}
		if err := l.Do(ctx, write); !errors.Is(err, ErrBusy) {
			t.Errorf("Got %v, want %v", err, ErrBusy)
		}
		if err := l.Do(ctx, write); !errors.Is(err, errNoTime) {
			t.Errorf("Got %v for a request that has ended before, want %v", err, errNoTime)
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
