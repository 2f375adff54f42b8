package router_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/pkg/router"
)

// stored is an API server that answers with an object with so many empty items. Each takes 108 bytes: 12 for its text, 96
// for a map and its place.
type stored int

const storedItem = 108

func (n stored) RoundTrip(*http.Request) (*http.Response, error) {
	text := `{"items":[` + strings.Repeat("{},", int(n)-1) + `{}]}`
	return &http.Response{Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// get reads the object.
func (n stored) get(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://cluster/", nil)
	if err != nil {
		return err
	}
	resp, err := reads.Transport(n).RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// hold returns a func that holds n bytes, as reading an object does.
func hold(n int64) func(context.Context) error {
	return func(ctx context.Context) error { return reads.Hold(ctx, n) }
}

// reading returns an AdmitFunc that reads, calls then, and could not decide if reading failed.
func reading(read func(context.Context) error, then func()) router.AdmitFunc {
	return func(ctx context.Context, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if err := read(ctx); err != nil {
			status := apierrors.NewInternalError(err).Status()
			return &admissionv1.AdmissionResponse{Result: &status}
		}
		then()
		return &admissionv1.AdmissionResponse{Allowed: true}
	}
}

// tooManyBytes is why a request without memory is denied.
const tooManyBytes = "too many bytes of requests are held"

// TestReadsInFlight uses a limit of 100 MiB, of which 56 MiB are for the objects of ordinary requests. Each request reads an
// object of 20 MiB.
func TestReadsInFlight(t *testing.T) {
	release := make(chan struct{})
	s := serveLimited(t, router.Limits{Bytes: 100 << 20}, service(reading(hold(20<<20), func() { <-release })))
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if a := s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u"))); a.outcome() != http.StatusOK {
				t.Errorf("Got %d %s, want 200", a.code, a.body)
			}
		})
	}
	await(t, func() bool { _, bytes := inFlight(t, s); return bytes >= 40<<20 })
	a := s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u")))
	if busy(t, a) != tooManyBytes {
		t.Errorf("Got %d %s, want a denial with 429", a.code, a.body)
	}
	if got := s.counts(t)["postern_webhook_rejected_bodies_total mutate too_many_bytes /pods"]; got != 1 {
		t.Errorf("Got %v rejections, want 1: %v", got, s.counts(t))
	}
	close(release)
	all.Wait()
	await(t, func() bool { _, bytes := inFlight(t, s); return bytes == 0 })
}

// TestAReadWaitsForMemory covers an object that is read when another request ends.
func TestAReadWaitsForMemory(t *testing.T) {
	first := make(chan struct{}, 1)
	first <- struct{}{}
	s := serveLimited(t, router.Limits{Bytes: 100 << 20}, service(reading(hold(40<<20), func() {
		select {
		case <-first:
			time.Sleep(100 * time.Millisecond)
		default:
		}
	})))
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if a := s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u"))); a.outcome() != http.StatusOK {
				t.Errorf("Got %d %s, want 200", a.code, a.body)
			}
		})
	}
	all.Wait()
}

// TestAReadOfAnyObject covers objects that need more than the limit, also beside a request that takes all of it: they are
// read, or else their authors could choose that nothing is decided.
func TestAReadOfAnyObject(t *testing.T) {
	large := stored(60 << 20 / storedItem)
	svc := service(reading(func(ctx context.Context) error { return errors.Join(large.get(ctx), large.get(ctx)) }, func() {}))
	for _, weight := range []int64{0, 1 << 30} {
		svc.Objects.Weigh = func(*admissionv1.AdmissionRequest) int64 { return weight }
		s := serveLimited(t, router.Limits{Bytes: router.MinBytes}, svc)
		for range 2 {
			if a := s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u"))); a.outcome() != http.StatusOK {
				t.Errorf("Weight %d: got %d %s, want 200", weight, a.code, a.body)
			}
		}
		if _, bytes := inFlight(t, s); bytes != 0 {
			t.Errorf("Weight %d: %v bytes are held after the answers", weight, bytes)
		}
	}
}

// TestReadsAfterTheDeadline covers an AdmitFunc that goes on after the answer: its memory stays held.
func TestReadsAfterTheDeadline(t *testing.T) {
	release := make(chan struct{})
	s := serveLimited(t, router.Limits{Bytes: 100 << 20}, service(reading(stored(20<<20/storedItem).get, func() { <-release })))
	if a := s.post(t, "/pods/mutate?timeout=2s", bytes.NewReader(review(t, "u"))); a.code != http.StatusGatewayTimeout {
		t.Errorf("Got %d %s, want 504", a.code, a.body)
	}
	if _, bytes := inFlight(t, s); bytes < 20<<20 {
		t.Errorf("%v bytes are held while the AdmitFunc uses them", bytes)
	}
	close(release)
	await(t, func() bool { _, bytes := inFlight(t, s); return bytes == 0 })
}

// TestReadsThatOutliveTheirRequest covers work that goes on after its request, within a scope and without one.
func TestReadsThatOutliveTheirRequest(t *testing.T) {
	object, ended, done := stored(20<<20/storedItem), make(chan struct{}), make(chan error)
	within := func(ctx context.Context) {
		ctx, end := reads.Scope(ctx)
		defer end()
		<-ended
		err := object.get(ctx)
		done <- err
		<-done
	}
	s := serveLimited(t, router.Limits{Bytes: 100 << 20}, service(reading(func(ctx context.Context) error {
		go within(context.WithoutCancel(ctx))
		return nil
	}, func() {})))
	if a := s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u"))); a.outcome() != http.StatusOK {
		t.Errorf("Got %d %s, want 200", a.code, a.body)
	}
	close(ended)
	if err := <-done; err != nil {
		t.Errorf("Reading within a scope: %v", err)
	}
	if _, bytes := inFlight(t, s); bytes < 20<<20 {
		t.Errorf("%v bytes are held within the scope, want 20 MiB", bytes)
	}
	done <- nil
	await(t, func() bool { _, bytes := inFlight(t, s); return bytes == 0 })
}

// TestScopeWithinARequest covers objects that are read within a scope. They never wait for what their own request holds.
func TestScopeWithinARequest(t *testing.T) {
	for _, c := range []struct{ held, object int64 }{{20 << 20, 30 << 20}, {1 << 20, 60 << 20}, {1 << 30, 60 << 20}, {0, 10 << 20}} {
		svc := service(reading(func(ctx context.Context) error {
			for range 2 {
				scoped, end := reads.Scope(ctx)
				err := stored(c.object / storedItem).get(scoped)
				end()
				if err != nil {
					return err
				}
			}
			if err := stored(10 << 20 / storedItem).get(ctx); err != nil {
				return err
			}
			scoped, end := reads.Scope(ctx)
			defer end()
			return stored(c.object / storedItem).get(scoped)
		}, func() {}))
		svc.Objects.Weigh = func(*admissionv1.AdmissionRequest) int64 { return c.held }
		s := serveLimited(t, router.Limits{Bytes: router.MinBytes}, svc)
		if a := s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u"))); a.outcome() != http.StatusOK {
			t.Errorf("%+v: got %d %s, want 200", c, a.code, a.body)
		}
		if _, bytes := inFlight(t, s); bytes != 0 {
			t.Errorf("%+v: %v bytes are held after the answer", c, bytes)
		}
	}
}

// TestMemoryIsLackedWithinAScope covers a request whose scope gets no memory: the client repeats it.
func TestMemoryIsLackedWithinAScope(t *testing.T) {
	release := make(chan struct{})
	var first atomic.Bool
	svc := service(reading(func(ctx context.Context) error {
		ctx, end := reads.Scope(ctx)
		defer end()
		err := reads.Hold(ctx, 30<<20)
		if first.CompareAndSwap(false, true) {
			<-release
		}
		return err
	}, func() {}))
	s := serveLimited(t, router.Limits{Bytes: router.MinBytes}, svc)
	var all sync.WaitGroup
	all.Go(func() { s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u"))) })
	await(t, first.Load)
	if a := s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u"))); busy(t, a) != tooManyBytes {
		t.Errorf("Got %d %s, want a denial with 429", a.code, a.body)
	}
	close(release)
	all.Wait()
}

// TestLargeReadsTakeTurns covers many requests that read objects of which only one fits. All of them are answered in the end.
func TestLargeReadsTakeTurns(t *testing.T) {
	s := serveLimited(t, router.Limits{Bytes: router.MinBytes}, service(reading(stored(30<<20/storedItem).get, func() {})))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 50 {
				if a := s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u"))); a.outcome() != http.StatusTooManyRequests {
					if a.outcome() != http.StatusOK {
						t.Errorf("Got %d %s, want 200", a.code, a.body)
					}
					return
				}
			}
			t.Error("It was refused 50 times")
		})
	}
	all.Wait()
	if _, bytes := inFlight(t, s); bytes != 0 {
		t.Errorf("%v bytes are held after the answers", bytes)
	}
}

// TestBackground covers work that belongs to no request.
func TestBackground(t *testing.T) {
	r, err := router.New(nil, nil, router.WithLimits(router.Limits{Bytes: 100 << 20}))
	if err != nil {
		t.Fatal(err)
	}
	object := stored(40 << 20 / storedItem)
	ctx := r.Background(t.Context())
	for range 3 {
		if err := object.get(ctx); err != nil {
			t.Errorf("Got the error %v without a scope, where nothing counts", err)
		}
	}
	one, end := reads.Scope(ctx)
	if err := object.get(one); err != nil {
		t.Errorf("Got the error %v, want none", err)
	}
	other, endOther := reads.Scope(ctx)
	defer endOther()
	if err := object.get(other); err == nil || errors.Is(err, reads.ErrTooLarge) {
		t.Errorf("Got the error %v while the other scope holds the memory", err)
	}
	end()
	if err := object.get(other); err != nil {
		t.Errorf("Got the error %v, want none", err)
	}
}
