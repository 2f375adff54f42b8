package router_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/pkg/router"
)

// filler is a component of the control plane whose requests take all that there is.
const filler = "system:kube-scheduler"

// full is a router that has no room.
type full struct {
	limits router.Limits
	serve  router.AdmissionService
	// fill takes all that there is, and returns a condition that is true then.
	fill func(*testing.T, *server) (isFull func() bool)
	// length is that of the bodies that have no room.
	length int
	reason string
}

// fullRouters are the ways in which a router has no room, until release is closed.
func fullRouters(t *testing.T, release <-chan struct{}) map[string]full {
	t.Helper()
	decide := func(t *testing.T, s *server) func() bool {
		t.Helper()
		var all sync.WaitGroup
		t.Cleanup(all.Wait)
		all.Go(func() { s.post(t, "/pods/mutate", bytes.NewReader(encode(t, new(from("", filler))))) })
		return func() bool { n, _ := inFlight(t, s); return n == 1 }
	}
	readAll := service(func(ctx context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		n := int64(30 << 20)
		if ar.UserInfo.Username == filler {
			n = 70 << 20
		}
		return reading(hold(n), func() { <-release })(ctx, ar)
	})
	return map[string]full{
		"requests": {router.Limits{Requests: 1}, service(blocking(release)), decide, 0, "too many requests are being decided"},
		"memory":   {router.Limits{Bytes: 64 << 20}, heavy(1<<40, release), decide, 0, tooManyBytes},
		"what is read": {router.Limits{Bytes: 100 << 20}, readAll, func(t *testing.T, s *server) func() bool {
			t.Helper()
			decide(t, s)
			return func() bool { _, held := inFlight(t, s); return held >= 70<<20 }
		}, 0, tooManyBytes},
		// A source may hold 1 MiB, of which each body takes a quarter.
		"bodies": {router.Limits{Bytes: 8 << 20, ReadTimeout: time.Minute}, service(allow), func(t *testing.T, s *server) func() bool {
			t.Helper()
			for range 3 {
				s.dial(t).begin("/pods/mutate", 1<<20, []byte(" "))
			}
			return func() bool { _, held := inFlight(t, s); return held > 750<<10 }
		}, 300_000, tooManyBytes},
		"answers": {router.Limits{Bytes: 64 << 20, ReadTimeout: time.Minute}, service(patching(5 << 20)), func(t *testing.T, s *server) func() bool {
			t.Helper()
			body := encode(t, new(from("", filler)))
			fmt.Fprintf(s.dialSlowly(t), "POST /pods/mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			return func() bool { n, held := inFlight(t, s); return n == 0 && held > 6<<20 }
		}, 0, "too many bytes of answers are held"},
	}
}

// TestWhoIsDeniedWithoutRoom has requests for which there is no room. A user chooses how many requests he sends, and a failure
// would be decided by the failure policy.
func TestWhoIsDeniedWithoutRoom(t *testing.T) {
	release := make(chan struct{})
	alice, node, controller := from("shop", "alice"), from("", "system:node:a", "system:authenticated", "system:nodes"), from("shop", "system:serviceaccount:kube-system:job-controller")
	withExtra := controller
	withExtra.UserInfo.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/pod-name": {strings.Repeat("x", 1500)}}
	// A user can make the name longer, so that his own name is far behind.
	long := from("shop", "system:kube-controller-manager")
	long.Name = strings.Repeat("x", 5000)
	for name, f := range fullRouters(t, release) {
		t.Run(name, func(t *testing.T) {
			s := serveLimited(t, f.limits, f.serve)
			await(t, f.fill(t, s))
			tests := []struct {
				user   string
				ar     admissionv1.AdmissionRequest
				denied bool
			}{
				{"a user", alice, true},
				{"a node", node, true},
				{"a controller", controller, false},
				{"a controller with more in its token", withExtra, false},
				{"Postern itself", from("shop", "system:serviceaccount:postern-system:postern"), false},
				{"a controller behind a long name", long, name == "bodies"},
			}
			var all sync.WaitGroup
			answers := make([]answer, len(tests))
			for i, tc := range tests {
				body := encode(t, &tc.ar)
				all.Go(func() {
					answers[i] = s.post(t, "/pods/mutate", bytes.NewReader(padded(body, max(f.length, len(body)))))
				})
			}
			all.Wait()
			for i, tc := range tests {
				a := answers[i]
				if tc.denied && busy(t, a) != f.reason {
					t.Errorf("%s: got %d %s, want a denial", tc.user, a.code, a.body)
				}
				if !tc.denied && (a.code != http.StatusTooManyRequests || a.header.Get("Retry-After") != "1" || strings.TrimSpace(a.body) != f.reason) {
					t.Errorf("%s: got %d %v %s, want 429, which the API server repeats", tc.user, a.code, a.header, a.body)
				}
			}
		})
	}
	close(release)
}

// TestDeadlineAfterWaitingForMemory has requests that get memory for themselves, or for what they read, after a while, and are
// then too late.
func TestDeadlineAfterWaitingForMemory(t *testing.T) {
	for _, isRead := range []bool{false, true} {
		for user, isDenied := range map[string]bool{"alice": true, "system:kube-controller-manager": false} {
			t.Run(fmt.Sprint(user, isRead), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					stuck := service(func(ctx context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
						if isRead {
							if err := reads.Hold(ctx, 40<<20); err != nil {
								t.Errorf("Got %v, want the memory", err)
							}
						}
						if ar.UserInfo.Username == filler {
							time.Sleep(200 * time.Millisecond)
							return &admissionv1.AdmissionResponse{Allowed: true}
						}
						<-ctx.Done()
						return nil
					})
					if !isRead {
						stuck.Objects.Weigh = func(*admissionv1.AdmissionRequest) int64 { return 40 << 20 }
					}
					r := newRouter(t, router.Limits{Bytes: 100 << 20}, stuck)
					go exchange(t, r, "/pods/mutate", new(from("", filler)))
					synctest.Wait()
					a := exchange(t, r, "/pods/mutate?timeout=1s", new(from("", user)))
					if isDenied != (busy(t, a) == waitedForOthers) || !isDenied && a.code != http.StatusGatewayTimeout {
						t.Errorf("Got %d %s", a.code, a.body)
					}
				})
			})
		}
	}
}

// waitedForOthers is why a request that waited and could not be decided is denied.
const waitedForOthers = "the request had to wait and could not be decided, repeat it later"

// newRouter returns a router without a server.
func newRouter(t *testing.T, limits router.Limits, services ...router.AdmissionService) *router.Router {
	t.Helper()
	r, err := router.New(services, router.NewMetrics(metrics.NewKubeRegistry()), router.WithLimits(limits))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// partial is a body of which a part arrives, and then an error.
type partial struct {
	io.Reader

	proceed <-chan struct{}
	err     error
}

func (p *partial) Read(to []byte) (int, error) {
	n, err := p.Reader.Read(to)
	if n > 0 || err == nil {
		return n, nil
	}
	<-p.proceed
	return 0, p.err
}

// TestSlowBodyAfterWaitingForMemory has a body that gets memory, or more memory, after a while, and then does not arrive in time.
func TestSlowBodyAfterWaitingForMemory(t *testing.T) {
	for name, tc := range map[string]struct{ others, length, sent int }{
		"at first":          {3, 300_000, 1000},
		"when it is longer": {2, 600_000, 300_000},
		"there is memory":   {0, 600_000, 300_000},
	} {
		for user, isDenied := range map[string]bool{"alice": tc.others > 0, "system:kube-controller-manager": false} {
			t.Run(name+" "+user, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					// A source may hold 1 MiB, of which each body takes a quarter at first.
					r := newRouter(t, router.Limits{Bytes: 8 << 20}, service(allow))
					given, now := make(chan struct{}), make(chan struct{})
					close(now)
					for range tc.others {
						go exchangeBody(t, r, "/pods/mutate", &partial{strings.NewReader(" "), given, io.ErrUnexpectedEOF}, 1<<20)
					}
					synctest.Wait()
					time.AfterFunc(200*time.Millisecond, func() { close(given) })
					body := padded(encode(t, new(from("", user))), tc.sent)
					a := exchangeBody(t, r, "/pods/mutate", &partial{bytes.NewReader(body), now, os.ErrDeadlineExceeded}, tc.length)
					if a.outcome() != http.StatusServiceUnavailable || (a.code == http.StatusOK) != isDenied {
						t.Errorf("Got %d %s, want 503", a.code, a.body)
					}
				})
			})
		}
	}
}
