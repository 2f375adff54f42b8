package router_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/pkg/router"
)

// heavy is a service whose requests have the given weight and wait until release is
// closed.
func heavy(bytes int64, release <-chan struct{}) router.AdmissionService {
	s := service(blocking(release))
	s.Objects.Weigh = func(*admissionv1.AdmissionRequest) int64 { return bytes }
	return s
}

func inFlight(t *testing.T, s *server) (requests, bytes float64) {
	t.Helper()
	counts := s.counts(t)
	return counts["postern_webhook_requests_in_flight mutate /pods"], counts["postern_webhook_bytes_in_flight"]
}

// TestBytesInFlight uses a limit of 100 MiB. 75 MiB are for decoded objects, and three quarters of these are for
// ordinary requests.
func TestBytesInFlight(t *testing.T) {
	release := make(chan struct{})
	s := serveLimited(t, router.Limits{Bytes: 100 << 20}, heavy(20<<20, release))
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if a := s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u"))); a.outcome() != http.StatusOK {
				t.Errorf("Got %d %s, want 200", a.code, a.body)
			}
		})
	}
	await(t, func() bool { n, _ := inFlight(t, s); return n == 2 })
	start := time.Now()
	a := s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u")))
	if busy(t, a) != tooManyBytes {
		t.Errorf("Got %d %s, want a denial with 429", a.code, a.body)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("It waited %v, want a moment", took)
	}
	all.Go(func() {
		node := reviewOf(t, authenticationv1.UserInfo{Username: "system:node:n", Groups: []string{"system:nodes"}})
		if a := s.post(t, "/pods/mutate", bytes.NewReader(node)); a.outcome() != http.StatusOK {
			t.Errorf("Got %d %s for a node, want 200", a.code, a.body)
		}
	})
	await(t, func() bool { n, _ := inFlight(t, s); return n == 3 })
	if _, n := inFlight(t, s); n < 60<<20 || n > 61<<20 {
		t.Errorf("Got %v bytes in flight, want 60 MiB and the bodies", n)
	}
	close(release)
	all.Wait()
	await(t, func() bool { n, held := inFlight(t, s); return n == 0 && held == 0 })
	counts := s.counts(t)
	if got := counts["postern_webhook_rejected_bodies_total mutate too_many_bytes /pods"]; got != 1 {
		t.Errorf("Got %v rejections counted, want 1", got)
	}
	if got := counts["postern_webhook_bytes_in_flight_limit"]; got != 100<<20 {
		t.Errorf("Got the limit %v, want 100 MiB", got)
	}
}

// TestBytesAreWaitedFor sends a request shortly before bytes become available.
func TestBytesAreWaitedFor(t *testing.T) {
	release := make(chan struct{})
	s := serveLimited(t, router.Limits{Bytes: 64 << 20}, heavy(30<<20, release))
	codes := make(chan int, 2)
	for range 2 {
		go func() { codes <- s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u"))).outcome() }()
	}
	await(t, func() bool { n, _ := inFlight(t, s); return n == 1 })
	time.AfterFunc(100*time.Millisecond, func() { close(release) })
	for range 2 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("Got %d, want 200", code)
		}
	}
}

// needing is an AdmitFunc that waits for n requests, and needs so many bytes twice before it calls then.
func needing(n int, bytes int64, then func()) router.AdmitFunc {
	var there sync.WaitGroup
	there.Add(n)
	return func(ctx context.Context, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		there.Done()
		there.Wait()
		for range 2 {
			if err := reads.Need(ctx, bytes); err != nil {
				return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: http.StatusInternalServerError, Message: err.Error()}}
			}
		}
		then()
		return &admissionv1.AdmissionResponse{Allowed: true}
	}
}

// TestRequestsThatNeedMore has requests that hold most of the memory and need more. None of them may keep the others from being
// decided.
func TestRequestsThatNeedMore(t *testing.T) {
	var all sync.WaitGroup
	svc := heavy(8<<20, nil)
	svc.Mutate = needing(4, 10<<20, func() {})
	// 36 MiB are for the objects of ordinary requests.
	s := serveLimited(t, router.Limits{Bytes: 64 << 20}, svc)
	for range 4 {
		all.Go(func() {
			if a := s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u"))); a.outcome() != http.StatusOK {
				t.Errorf("Got %d %s, want 200", a.code, a.body)
			}
		})
	}
	all.Wait()
	await(t, func() bool { n, held := inFlight(t, s); return n == 0 && held == 0 })
}

// TestWhoLacksMemory has two requests that need all memory. One of them is denied, although the control plane sends it,
// because users make it send some.
func TestWhoLacksMemory(t *testing.T) {
	release := make(chan struct{})
	svc := heavy(8<<20, nil)
	svc.Mutate = needing(2, 100<<20, func() { <-release })
	s := serveLimited(t, router.Limits{Bytes: 256 << 20}, svc)
	codes := make(chan int, 2)
	for range 2 {
		go func() {
			component := reviewOf(t, authenticationv1.UserInfo{Username: "system:kube-controller-manager"})
			switch resp := response(t, s.post(t, "/pods/mutate", bytes.NewReader(component)), "u"); {
			case resp.Allowed:
				codes <- http.StatusOK
			default:
				codes <- int(resp.Result.Code)
			}
		}()
	}
	denied := <-codes
	close(release)
	if allowed := <-codes; denied != http.StatusTooManyRequests || allowed != http.StatusOK {
		t.Errorf("Got the codes %d and %d, want a denial with 429 and then 200", denied, allowed)
	}
	await(t, func() bool { n, held := inFlight(t, s); return n == 0 && held == 0 })
}

// TestMoreThanThereIs sends a request that needs more than the limit of its class. The request reserves the whole
// limit.
func TestMoreThanThereIs(t *testing.T) {
	release := make(chan struct{})
	s := serveLimited(t, router.Limits{Bytes: 64 << 20}, heavy(1<<40, release))
	code := make(chan int, 1)
	go func() { code <- s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u"))).outcome() }()
	await(t, func() bool { n, _ := inFlight(t, s); return n == 1 })
	if a := s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u"))); busy(t, a) != tooManyBytes {
		t.Errorf("Got %d %s beside it, want a denial with 429", a.code, a.body)
	}
	close(release)
	if got := <-code; got != http.StatusOK {
		t.Errorf("Got %d, want 200", got)
	}
}

// TestBoundWhileMemoryIsAmple checks that the bound of a service counts only while it and all that is held fit in a
// quarter of the memory.
func TestBoundWhileMemoryIsAmple(t *testing.T) {
	release := make(chan struct{})
	svc := heavy(1<<20, release)
	svc.Objects.Bound = func([]byte) int64 { return 10 << 20 }
	s := serveLimited(t, router.Limits{Bytes: 100 << 20}, svc)
	var all sync.WaitGroup
	defer all.Wait()
	defer close(release)
	// A quarter of the 75 MiB for decoded objects holds one bound.
	for i, want := range []float64{10 << 20, 11 << 20, 12 << 20} {
		all.Go(func() { s.post(t, "/pods/mutate", bytes.NewReader(review(t, "u"))) })
		await(t, func() bool { n, _ := inFlight(t, s); return n == float64(i+1) })
		if _, held := inFlight(t, s); held < want || held > want+1<<20 {
			t.Errorf("Got %v bytes in flight with %d requests, want %v and the bodies", held, i+1, want)
		}
	}
}

// TestWeightOfAServiceThatDoesNotSay checks that requests to a service without Weigh are weighed by the length of
// their objects.
func TestWeightOfAServiceThatDoesNotSay(t *testing.T) {
	release := make(chan struct{})
	s := serveLimited(t, router.Limits{Bytes: 64 << 20}, service(blocking(release)))
	body := encode(t, &admissionv1.AdmissionRequest{UID: "u", Object: runtime.RawExtension{Raw: []byte(`"` + strings.Repeat("x", 1<<20) + `"`)}})
	code := make(chan int, 1)
	go func() { code <- s.post(t, "/pods/mutate", bytes.NewReader(body)).outcome() }()
	await(t, func() bool { _, held := inFlight(t, s); return held > 9<<20 && held < 11<<20 })
	close(release)
	if got := <-code; got != http.StatusOK {
		t.Errorf("Got %d, want 200", got)
	}
}

// TestSlowBodiesDoNotHoldEverything sends many incomplete bodies from one source. The router must serve another
// source meanwhile.
func TestSlowBodiesDoNotHoldEverything(t *testing.T) {
	s := serveLimited(t, router.Limits{Bytes: 64 << 20, ReadTimeout: 3 * time.Second}, service(allow))
	config := s.Client().Transport.(*http.Transport).TLSClientConfig
	part := "{" + strings.Repeat(" ", 1<<20)
	for range 12 {
		conn, err := tls.Dial("tcp", s.Listener.Addr().String(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go fmt.Fprintf(conn, "POST /pods/mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", 3<<20, part)
	}
	await(t, func() bool { _, held := inFlight(t, s); return held > 4<<20 })
	if _, held := inFlight(t, s); held > 8<<20 {
		t.Errorf("Got %v bytes held by one source, want 8 MiB at most", held)
	}
	// The other source is another loopback address, if the machine has several.
	transport := s.Client().Transport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	transport.DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext
	resp, err := (&http.Client{Transport: transport}).Post(s.URL+"/pods/mutate", "application/json", bytes.NewReader(review(t, "u")))
	if err != nil {
		t.Skipf("There is no other source: %v", err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || !bytes.Contains(text, []byte(`"allowed":true`)) {
		t.Errorf("Got %d %s (%v) for another source, want it admitted", resp.StatusCode, text, err)
	}
	await(t, func() bool { _, held := inFlight(t, s); return held == 0 })
}

// TestBodyBeyondTheLimitOfASource sends a body that needs more than one source may hold. It takes most of the limit, so
// that its size is no reason to fail, and so that other requests of the source have room.
func TestBodyBeyondTheLimitOfASource(t *testing.T) {
	release := make(chan struct{})
	s := serveLimited(t, router.Limits{Bytes: 64 << 20}, heavy(1, release), router.AdmissionService{Path: "/other"})
	body := review(t, "u")
	body = append(body, bytes.Repeat([]byte(" "), router.MaxBodyBytes-len(body))...)
	code := make(chan int, 1)
	go func() { code <- s.post(t, "/pods/mutate", bytes.NewReader(body)).outcome() }()
	await(t, func() bool { n, _ := inFlight(t, s); return n == 1 })
	if _, held := inFlight(t, s); held < 7<<20 || held > 7<<20+1000 {
		t.Errorf("Got %v bytes held, want 7 MiB", held)
	}
	quick := make(chan int, 1)
	go func() { quick <- s.post(t, "/other/validate", bytes.NewReader(review(t, "u"))).outcome() }()
	if got := <-quick; got != http.StatusOK {
		t.Errorf("Got %d for a small request beside it, want 200", got)
	}
	close(release)
	if got := <-code; got != http.StatusOK {
		t.Errorf("Got %d, want 200", got)
	}
	await(t, func() bool { _, held := inFlight(t, s); return held == 0 })
}

// TestOneOfManyLargeBodiesIsRead sends eight bodies that all need more memory at the same time than one source may hold.
// If all of them waited for each other, all would be rejected. A body that is rejected gives its memory back before its
// end arrives.
func TestOneOfManyLargeBodiesIsRead(t *testing.T) {
	s := serveLimited(t, router.Limits{Bytes: 64 << 20}, service(allow))
	const n, first, second, whole = 8, 600_000, 1_500_000, 3 << 20
	body := review(t, "u")
	body = append(body, bytes.Repeat([]byte(" "), whole-len(body))...)
	more, rest, codes := make(chan struct{}), make(chan struct{}), make(chan int, n)
	for range n {
		r, w := io.Pipe()
		go func() {
			_, _ = w.Write(body[:first])
			<-more
			_, _ = w.Write(body[first:second])
			<-rest
			_, _ = w.Write(body[second:])
			_ = w.Close()
		}()
		go func() { codes <- s.post(t, "/pods/mutate", r).outcome() }()
	}
	// Each body holds 1 MiB, which is all that the source may hold.
	await(t, func() bool { _, held := inFlight(t, s); return held == n<<20 })
	close(more)
	time.Sleep(time.Second) // A request waits less than that for bytes.
	close(rest)
	got := map[int]int{}
	for range n {
		got[<-codes]++
	}
	if got[http.StatusOK] == 0 || got[http.StatusOK]+got[http.StatusTooManyRequests] != n {
		t.Errorf("Got the codes %v, want 200 and 429", got)
	}
	await(t, func() bool { _, held := inFlight(t, s); return held == 0 })
}

// TestValuesThatCannotBeStored sends an object with more JSON values than the largest storable object has bytes.
func TestValuesThatCannotBeStored(t *testing.T) {
	s := serve(t, service(func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		t.Error("It was decided")
		return &admissionv1.AdmissionResponse{Allowed: true}
	}))
	for _, field := range []string{"object", "oldObject"} {
		body := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","` + field + `":{"spec":[` + strings.Repeat("0,", 1_600_000) + `0]}}}`
		got := response(t, s.post(t, "/pods/mutate", strings.NewReader(body)), "u")
		want := "request." + field + " has 1600003 JSON values, and no object that can be stored has more than 1572864"
		if got.Allowed || got.Result.Code != http.StatusRequestEntityTooLarge || got.Result.Message != want {
			t.Errorf("Got %+v, want it denied with %q", got.Result, want)
		}
	}
	many := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","object":"` + strings.Repeat(",", 4<<20) + `"}}`
	a := serve(t, service(allow)).post(t, "/pods/mutate", io.MultiReader(strings.NewReader(many)))
	if !response(t, a, "u").Allowed {
		t.Errorf("Got %s, want a text with commas allowed", a.body)
	}
}

// TestObjectsAreDecodedWhileMemoryIsAmple checks in which requests the router decodes the objects.
func TestObjectsAreDecodedWhileMemoryIsAmple(t *testing.T) {
	for _, c := range []struct {
		name, object string
		bound        int64
		kind         string
		want         bool
	}{
		{"memory is ample", `{"metadata":{"name":"a"}}`, 1 << 20, "ConfigMap", true},
		{"memory is not ample", `{"metadata":{"name":"a"}}`, 15 << 20, "ConfigMap", false},
		{"the object is large", `{"metadata":{"name":"a"}}`, 17 << 20, "ConfigMap", false},
		{"an unknown kind", `{"metadata":{"name":"a"}}`, 1 << 20, "Custom", false},
		{"an object that is not plain", `{"metadata":{"name":"a","name":"a"}}`, 1 << 20, "ConfigMap", false},
		{"an object that is none", `"text"`, 1 << 20, "ConfigMap", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got *admissionv1.AdmissionRequest
			svc := service(func(_ context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				got = ar
				return &admissionv1.AdmissionResponse{Allowed: true}
			})
			svc.Objects.Bound = func([]byte) int64 { return c.bound }
			svc.Objects.New = func(ar *admissionv1.AdmissionRequest) runtime.Object {
				if ar.Kind.Kind != "ConfigMap" {
					return nil
				}
				return &corev1.ConfigMap{}
			}
			limits := router.Limits{Bytes: 64 << 20} // Less than 12 MiB are ample.
			if c.bound > 16<<20 {
				limits.Bytes = 1 << 30
			}
			ar := &admissionv1.AdmissionRequest{UID: "u", Kind: metav1.GroupVersionKind{Version: "v1", Kind: c.kind}, Object: runtime.RawExtension{Raw: []byte(c.object)}}
			ar.OldObject, ar.Options = ar.Object, runtime.RawExtension{Raw: []byte(`{}`)}
			if a := serveLimited(t, limits, svc).post(t, "/pods/mutate", bytes.NewReader(encode(t, ar))); a.code != http.StatusOK {
				t.Fatalf("Got %d %s", a.code, a.body)
			}
			for _, raw := range []runtime.RawExtension{got.Object, got.OldObject} {
				obj, decoded := raw.Object.(*corev1.ConfigMap)
				if decoded != c.want || decoded && obj.Name != "a" || string(raw.Raw) != c.object {
					t.Errorf("Got %s and %v, want it decoded: %t", raw.Raw, raw.Object, c.want)
				}
			}
			if got.Options.Object != nil {
				t.Errorf("Got the options %v, want only their text", got.Options.Object)
			}
		})
	}
}
