package eventratelimit_test

import (
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/postern-dev/postern/pkg/admissions/events/eventratelimit"
	"github.com/postern-dev/postern/pkg/admit"
)

// senders is the number of concurrent senders.
const senders = 16

// started returns the plugin with one limit and a clock that stands still.
func started(t *testing.T, limit string) admit.Handler {
	t.Helper()
	config := "{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [" + limit + "]}"
	h, err := eventratelimit.Plugin.New(admit.Deps{Clock: clocktesting.NewFakeClock(time.Unix(0, 0))}, []byte(config))
	if err != nil {
		t.Fatalf("Making the plugin: %v", err)
	}
	return h
}

// refused sends an event and reports whether the plugin refused it.
func refused(t *testing.T, h admit.Handler, namespace string) bool {
	t.Helper()
	err := h.Validate(t.Context(), &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Event"}, Namespace: namespace,
	}})
	if err != nil && !apierrors.IsTooManyRequests(err) {
		t.Errorf("Got the error %v, want none but a status of %d", err, http.StatusTooManyRequests)
	}
	return err != nil
}

// TestNewBucketIsSharedByAllWhoComeAtOnce sends concurrent requests that all find no bucket. If each request
// made its own bucket, more events would pass than the burst. The senders visit the namespaces in step,
// because the window for the race is short.
func TestNewBucketIsSharedByAllWhoComeAtOnce(t *testing.T) {
	const namespaces, sideBySide = 20000, 2
	h := started(t, "{type: Namespace, qps: 1, burst: 1, cacheSize: 100}")
	var arrived [namespaces]atomic.Int32
	var passed [namespaces]atomic.Int32
	var all sync.WaitGroup
	for range sideBySide {
		all.Go(func() {
			for i := range namespaces {
				arrived[i].Add(1)
				for arrived[i].Load() < sideBySide {
					runtime.Gosched()
				}
				if !refused(t, h, fmt.Sprint("ns-", i)) {
					passed[i].Add(1)
				}
			}
		})
	}
	all.Wait()
	for i := range namespaces {
		if got := passed[i].Load(); got != 1 {
			t.Fatalf("In namespace %d %d events passed, want one", i, got)
		}
	}
}

// TestBucketsAreBounded uses far more buckets than the cache holds. An evicted bucket is full again.
func TestBucketsAreBounded(t *testing.T) {
	const size, each = 10, 500
	h := started(t, fmt.Sprintf("{type: Namespace, qps: 1, burst: 1, cacheSize: %d}", size))
	var all sync.WaitGroup
	for sender := range senders {
		all.Go(func() {
			for i := range each {
				if refused(t, h, fmt.Sprintf("ns-%d-%d", sender, i)) {
					t.Errorf("The first event in namespace %d-%d was refused", sender, i)
				}
			}
		})
	}
	all.Wait()
	for _, want := range []bool{false, true} {
		for i := range size {
			if got := refused(t, h, fmt.Sprint("last-", i)); got != want {
				t.Errorf("That an event in one of the last %d namespaces is refused is %t, want %t", size, got, want)
			}
		}
	}
	for sender := range senders {
		for i := range each {
			if refused(t, h, fmt.Sprintf("ns-%d-%d", sender, i)) {
				t.Errorf("The bucket of namespace %d-%d was kept, there is room for %d", sender, i, size)
			}
		}
	}
}
