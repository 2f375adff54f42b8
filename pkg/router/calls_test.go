package router_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/pkg/router"
)

// calling is a service whose requests call an API server. It answers the calls for requests that are not dry runs with the values
// of answers.
type calling struct {
	answers chan error

	mu            sync.Mutex
	running, most int
}

func (c *calling) admit(ctx context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	if err := c.call(ctx, ar.DryRun != nil); err != nil {
		status := apierrors.NewInternalError(err).Status()
		return &admissionv1.AdmissionResponse{Result: &status}
	}
	return &admissionv1.AdmissionResponse{Allowed: true}
}

func (c *calling) call(ctx context.Context, isDryRun bool) error {
	end, err := reads.Call(ctx)
	if err != nil {
		return fmt.Errorf("calling: %w", err)
	}
	defer end()
	if isDryRun {
		return nil
	}
	c.count(1)
	defer c.count(-1)
	return <-c.answers
}

func (c *calling) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running += n
	c.most = max(c.most, c.running)
}

func (c *calling) calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// from returns a request of a user for an object in a namespace.
func from(namespace, user string, groups ...string) admissionv1.AdmissionRequest {
	return admissionv1.AdmissionRequest{UID: "u", Namespace: namespace, UserInfo: authenticationv1.UserInfo{Username: user, Groups: groups}}
}

// dryRunOf is a request whose call is answered at once.
func dryRunOf(ar admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
	ar.DryRun = new(true)
	return &ar
}

// isBusy reports whether a request is denied because of the calls of other ones.
func isBusy(t *testing.T, a answer, of string) bool {
	t.Helper()
	return busy(t, a) == "too many requests of "+of+" need the API server, repeat it later"
}

// maxCalls is how many calls the requests of a tenant make at a time.
const maxCalls = 16

// exchange sends a request to a handler without a connection.
func exchange(t *testing.T, h http.Handler, path string, ar *admissionv1.AdmissionRequest) answer {
	t.Helper()
	body := encode(t, ar)
	return exchangeBody(t, h, path, bytes.NewReader(body), len(body))
}

// exchangeBody is exchange for a body of which the given length is declared.
func exchangeBody(t *testing.T, h http.Handler, path string, body io.Reader, length int) answer {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, body)
	req.ContentLength = int64(length)
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return answer{code: w.Code, header: w.Header(), body: w.Body.String()}
}

// TestCallsOfOneTenant has requests of a tenant that make all calls that they may make at a time, as many that wait, and one more.
// Others do not notice.
func TestCallsOfOneTenant(t *testing.T) {
	const waiting = 40
	alice, node := from("shop", "alice"), from("shop", "system:node:a", "system:nodes")
	controller := from("shop", "system:serviceaccount:kube-system:replicaset-controller")
	own := from("shop", "system:serviceaccount:postern-system:postern")
	robot, otherRobot := from("", "system:serviceaccount:shop:robot"), from("", "system:serviceaccount:bank:robot")
	bob, carol := from("bank", "bob"), from("", "carol")
	namespace := from("shop", "carol")
	namespace.Resource = metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	for of, tc := range map[string]struct {
		flood []admissionv1.AdmissionRequest
		// others are requests of other tenants.
		others []admissionv1.AdmissionRequest
	}{
		`namespace "shop"`: {
			[]admissionv1.AdmissionRequest{alice, robot, from("shop", "system:serviceaccount:bank:robot")},
			[]admissionv1.AdmissionRequest{node, controller, bob, carol, namespace, own, otherRobot},
		},
		`node "system:node:a"`: {
			[]admissionv1.AdmissionRequest{node, from("bank", "system:node:a", "system:nodes")},
			[]admissionv1.AdmissionRequest{alice, controller, bob, carol, from("shop", "system:node:b", "system:nodes")},
		},
		`user "carol"`: {
			[]admissionv1.AdmissionRequest{carol, namespace},
			[]admissionv1.AdmissionRequest{alice, node, controller, bob, from("", "dave"), own},
		},
	} {
		t.Run(of, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, registry := &calling{answers: make(chan error)}, metrics.NewKubeRegistry()
				r, err := router.New([]router.AdmissionService{service(api.admit)}, router.NewMetrics(registry),
					router.WithLimits(router.Limits{Requests: 4 * waiting}), router.WithNamespace("postern-system"))
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					answers := make(chan answer, maxCalls+waiting+1)
					for i := range cap(answers) {
						go func() { answers <- exchange(t, r, "/pods/mutate", &tc.flood[i%len(tc.flood)]) }()
					}
					if a := <-answers; !isBusy(t, a, of) {
						t.Errorf("Got %s, want one request denied", a.body)
					}
					synctest.Wait()
					for i := range tc.others {
						if a := exchange(t, r, "/pods/mutate", dryRunOf(tc.others[i])); !response(t, a, "u").Allowed {
							t.Errorf("Got %s for %s in the namespace %q, want it allowed", a.body, tc.others[i].UserInfo.Username, tc.others[i].Namespace)
						}
					}
					for range maxCalls + waiting {
						api.answers <- nil
						if a := <-answers; !response(t, a, "u").Allowed {
							t.Errorf("Got %s, want it allowed", a.body)
						}
					}
				}
				if api.most != maxCalls {
					t.Errorf("There were %d calls at a time, want %d", api.most, maxCalls)
				}
				if got := (&server{registry: registry}).counts(t)["postern_webhook_rejected_bodies_total mutate too_many_calls /pods"]; got != 2 {
					t.Errorf("Got %v rejections, want 2", got)
				}
			})
		})
	}
}

// TestEveryTenantMayWait has tenants that need more calls than there may be, one after the other. Each gets its part of the
// requests that may wait, whatever the first ones have.
func TestEveryTenantMayWait(t *testing.T) {
	const waiting = 12
	synctest.Test(t, func(t *testing.T) {
		api := &calling{answers: make(chan error)}
		r, err := router.New([]router.AdmissionService{service(api.admit)}, nil, router.WithLimits(router.Limits{Requests: 4 * waiting * 4}))
		if err != nil {
			t.Fatal(err)
		}
		const part = waiting * 4
		all := make(chan answer, 1000)
		for i, want := range []int{part, part / 2, part / 3} {
			tenant := from(fmt.Sprint("shop-", i), "alice")
			for range maxCalls + want {
				go func() { all <- exchange(t, r, "/pods/mutate", &tenant) }()
			}
			synctest.Wait()
			if len(all) != 0 {
				t.Fatalf("Got %d answers for tenant %d, want that %d requests wait", len(all), i, want)
			}
			go func() { all <- exchange(t, r, "/pods/mutate", &tenant) }()
			if a := <-all; !isBusy(t, a, fmt.Sprintf("namespace %q", tenant.Namespace)) {
				t.Errorf("Got %s, want it denied", a.body)
			}
		}
		for range 3*maxCalls + part + part/2 + part/3 {
			api.answers <- nil
			if a := <-all; !response(t, a, "u").Allowed {
				t.Errorf("Got %s, want it allowed", a.body)
			}
		}
	})
}

// TestARequestIsRefusedAtItsFirstCall covers requests with many calls, one after the other. None is refused after some of its work.
func TestARequestIsRefusedAtItsFirstCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &calling{answers: make(chan error)}
		r, err := router.New([]router.AdmissionService{service(func(ctx context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			for range 9 {
				if resp := api.admit(ctx, ar); !resp.Allowed {
					return resp
				}
			}
			return &admissionv1.AdmissionResponse{Allowed: true}
		})}, nil, router.WithLimits(router.Limits{Requests: 80}))
		if err != nil {
			t.Fatal(err)
		}
		shop, answers := from("shop", "alice"), make(chan answer, 40)
		for range cap(answers) {
			go func() { answers <- exchange(t, r, "/pods/mutate", &shop) }()
		}
		synctest.Wait()
		close(api.answers)
		allowed, denied := 0, 0
		for range cap(answers) {
			if a := <-answers; isBusy(t, a, `namespace "shop"`) {
				denied++
			} else if response(t, a, "u").Allowed {
				allowed++
			}
		}
		const waiting = 20
		if want := maxCalls + waiting; allowed != want || denied != cap(answers)-want {
			t.Errorf("%d requests were allowed and %d denied, want %d and %d", allowed, denied, want, cap(answers)-want)
		}
	})
}

// TestManyCallsOfOneRequest covers a request with many calls at a time. It counts once among those that wait.
func TestManyCallsOfOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &calling{answers: make(chan error)}
		many := func(ctx context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			var all sync.WaitGroup
			scoped, end := reads.Scope(ctx)
			defer end()
			for i := range 3 * maxCalls {
				all.Go(func() {
					if err := api.call([]context.Context{ctx, scoped}[i%2], false); err != nil {
						t.Errorf("Got the error %v", err)
					}
				})
			}
			all.Wait()
			return &admissionv1.AdmissionResponse{Allowed: true}
		}
		r, err := router.New([]router.AdmissionService{service(many)}, nil, router.WithLimits(router.Limits{Requests: 16}))
		if err != nil {
			t.Fatal(err)
		}
		shop, answers := from("shop", "alice"), make(chan answer, 2)
		for range cap(answers) {
			go func() { answers <- exchange(t, r, "/pods/mutate", &shop) }()
		}
		for range 2 * 3 * maxCalls {
			synctest.Wait()
			if got := api.calls(); got > maxCalls {
				t.Fatalf("There are %d calls at a time", got)
			}
			api.answers <- nil
		}
		for range cap(answers) {
			if a := <-answers; !response(t, a, "u").Allowed {
				t.Errorf("Got %s, want it allowed", a.body)
			}
		}
	})
}

// TestFailuresAfterWaiting covers requests that could not be decided after they waited for others of their tenant, and some that
// did not wait. Those of a component of the control plane were chosen by nobody.
func TestFailuresAfterWaiting(t *testing.T) {
	away := errors.New("away")
	for name, tc := range map[string]struct {
		request admissionv1.AdmissionRequest
		// denied is the tenant in the denial, or "" for a failure.
		denied string
		// waits is how long it waits if it has a second.
		waits time.Duration
	}{
		"a user":       {from("shop", "alice"), `namespace "shop"`, 500 * time.Millisecond},
		"a node":       {from("shop", "system:node:a", "system:nodes"), `node "system:node:a"`, 500 * time.Millisecond},
		"a controller": {from("shop", "system:serviceaccount:kube-system:job-controller"), "", 900 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &calling{answers: make(chan error)}
				r, err := router.New([]router.AdmissionService{service(api.admit)}, nil)
				if err != nil {
					t.Fatal(err)
				}
				isWanted := func(a answer, code int) bool {
					return tc.denied == "" && a.code == code || tc.denied != "" && isBusy(t, a, tc.denied)
				}
				early, late := make(chan answer, maxCalls), make(chan answer)
				for range maxCalls {
					go func() { early <- exchange(t, r, "/pods/mutate?timeout=30s", &tc.request) }()
				}
				synctest.Wait()
				start := time.Now()
				if a := exchange(t, r, "/pods/mutate?timeout=1s", &tc.request); !isWanted(a, http.StatusGatewayTimeout) {
					t.Errorf("Got %d %s for a request that waited to its end", a.code, a.body)
				}
				if took := time.Since(start); took != tc.waits {
					t.Errorf("It waited %v, want %v", took, tc.waits)
				}
				go func() { late <- exchange(t, r, "/pods/mutate?timeout=30s", &tc.request) }()
				synctest.Wait()
				for range maxCalls {
					api.answers <- away
					if a := <-early; a.code != http.StatusInternalServerError {
						t.Errorf("Got %d %s for a request that did not wait, want 500", a.code, a.body)
					}
				}
				api.answers <- away
				if a := <-late; !isWanted(a, http.StatusInternalServerError) {
					t.Errorf("Got %d %s for a request that waited before it failed", a.code, a.body)
				}
			})
		})
	}
}

// TestWaitsEndAtHalfOfTheTime covers a request whose first call waits for a place, and which has its answer after half of its time.
// It gets another place only if one is free.
func TestWaitsEndAtHalfOfTheTime(t *testing.T) {
	for name, isFree := range map[string]bool{"a place is free": true, "no place is free": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &calling{answers: make(chan error)}
				r, err := router.New([]router.AdmissionService{service(func(ctx context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					if resp := api.admit(ctx, ar); ar.Name != "twice" || !resp.Allowed {
						return resp
					}
					return api.admit(ctx, ar)
				})}, nil)
				if err != nil {
					t.Fatal(err)
				}
				once, twice := from("shop", "alice"), from("shop", "alice")
				twice.Name = "twice"
				// The calls that wait at a channel get its values in the order in which they came.
				early, answers := make(chan answer, maxCalls), make(chan answer, 1)
				begin := func(n int) {
					for range n {
						go func() { early <- exchange(t, r, "/pods/mutate?timeout=30s", &once) }()
					}
					synctest.Wait()
				}
				begin(maxCalls)
				start := time.Now()
				go func() { answers <- exchange(t, r, "/pods/mutate?timeout=10s", &twice) }()
				synctest.Wait()
				time.Sleep(4 * time.Second)
				for range maxCalls {
					api.answers <- nil
					<-early
				}
				synctest.Wait()
				begin(maxCalls - 1)
				time.Sleep(4 * time.Second)
				if !isFree {
					begin(1)
				}
				api.answers <- nil
				if isFree {
					synctest.Wait()
					for range maxCalls {
						api.answers <- nil
					}
				}
				a := <-answers
				if took := time.Since(start); took != 8*time.Second {
					t.Errorf("It took %v, want 8s", took)
				}
				if isFree && !response(t, a, "u").Allowed || !isFree && !isBusy(t, a, `namespace "shop"`) {
					t.Errorf("Got %d %s", a.code, a.body)
				}
				close(api.answers)
			})
		})
	}
}

// TestAShortRequestThatWaited covers a request with less than the registered time-out. It is told why it was denied.
func TestAShortRequestThatWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &calling{answers: make(chan error)}
		r, err := router.New([]router.AdmissionService{service(api.admit)}, nil, router.WithTimeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		shop, early := from("shop", "alice"), make(chan answer, maxCalls)
		for range maxCalls {
			go func() { early <- exchange(t, r, "/pods/mutate?timeout=30s", &shop) }()
		}
		synctest.Wait()
		if a := exchange(t, r, "/pods/mutate?timeout=1s", &shop); !isBusy(t, a, `namespace "shop"`) {
			t.Errorf("Got %d %s, want a denial because of the other requests", a.code, a.body)
		}
		for range maxCalls {
			api.answers <- nil
			<-early
		}
	})
}
