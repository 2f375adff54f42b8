package app

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/pkg/certs"
)

func TestRotationIsFollowed(t *testing.T) {
	before := &certs.Rotation{Signer: "old"}
	leaves := time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)
	steps := []*certs.Rotation{
		{Signer: "old", Requested: true},
		nil,
		{Signer: "old", Next: "new"},
		{Signer: "new", Leaving: map[string]time.Time{"old": leaves}},
	}
	look := func(context.Context) (*certs.Rotation, error) {
		step := steps[0]
		steps = steps[1:]
		if step == nil {
			return nil, errors.New("connection refused")
		}
		return step, nil
	}
	var out bytes.Buffer
	if err := followRotation(t.Context(), &out, before, look); err != nil {
		t.Fatal(err)
	}
	want := "the CA new joined the bundle\nthe CA new signs; old stays in the bundle until 2026-01-08T12:00:00Z\n"
	if out.String() != want {
		t.Errorf("Got %q, want %q", out.String(), want)
	}
}

func TestRotationThatNobodyMakes(t *testing.T) {
	for want, now := range map[string]*certs.Rotation{
		"no replica has heeded the request":                     {Signer: "old", Requested: true},
		"not every webhook configuration holds the CA new, or ": {Signer: "old", Next: "new"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		err := followRotation(ctx, &bytes.Buffer{}, &certs.Rotation{Signer: "old"}, func(context.Context) (*certs.Rotation, error) { return now, nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Got the error %v, want %q", err, want)
		}
	}
}

func TestCertificateFlags(t *testing.T) {
	day := 24 * time.Hour
	for _, c := range []struct {
		flags certificateFlags
		want  string
	}{
		{certificateFlags{365 * day, 7 * day, time.Second}, ""},
		{certificateFlags{365 * day, 7 * day, 0}, "must be positive"},
		{certificateFlags{-day, 7 * day, time.Second}, "must be positive"},
		{certificateFlags{10 * day, 7 * day, time.Second}, "--ca-validity: 240h0m0s is less than two times"},
	} {
		err := c.flags.check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got the error %v, want %q", c.flags, err, c.want)
		}
	}
}
