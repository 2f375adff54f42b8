package backend_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/backend"
)

func TestHasTime(t *testing.T) {
	if !backend.HasTime(t.Context(), time.Hour) {
		t.Error("Got no time without a deadline")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if !backend.HasTime(ctx, time.Second) || backend.HasTime(ctx, time.Minute) {
		t.Error("Got the wrong answer for a minute")
	}
}

func TestTimedOut(t *testing.T) {
	for _, err := range []error{
		context.DeadlineExceeded, fmt.Errorf("asking: %w", context.DeadlineExceeded), &url.Error{Err: context.DeadlineExceeded},
		&url.Error{Err: &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}},
	} {
		if !backend.TimedOut(err) {
			t.Errorf("%v is a time-out", err)
		}
	}
	for _, err := range []error{nil, context.Canceled, errors.New("x"), &url.Error{Err: errors.New("refused")}} {
		if backend.TimedOut(err) {
			t.Errorf("%v is no time-out", err)
		}
	}
}
