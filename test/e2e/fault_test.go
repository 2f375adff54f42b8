package e2e_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/test/e2e"
)

// creationsAfterAFault is how many pods are created after each fault, in turn. The API server sends them on the connection
// that it used last.
const creationsAfterAFault = 6

// TestLateBodyLosesNoCreation holds the end of one review for longer than Postern waits for a body. The API server must
// repeat that review on another connection, so that not even the first creation fails.
func TestLateBodyLosesNoCreation(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	size, _ := f.sizes(t)
	gone := f.proxy.Disturb(e2e.Fault{After: size - 50, Stall: 6 * time.Second})
	f.create(t, "The creation whose review is late")
	<-gone
	f.createAll(t, "After a review that was 6 s late")
}

// TestNetworkFaultsLeaveNothingBehind disturbs a review or its answer once, at several points. The creation itself may
// fail. No creation may fail after the fault.
func TestNetworkFaultsLeaveNothingBehind(t *testing.T) {
	ring.Second(t, "18 faults that are waited for")
	t.Parallel()
	// Postern's deadline is 1.8 s.
	const timeout, late, lost = 2 * time.Second, 1900 * time.Millisecond, 2500 * time.Millisecond
	f := newFaulty(t, fmt.Sprint("--webhook-timeout=", timeout))
	review, answer := f.sizes(t)
	for _, size := range []struct {
		name    string
		answers bool
		bytes   int
	}{{"review", false, review}, {"answer", true, answer}} {
		for _, after := range []int{0, size.bytes / 2, size.bytes - 1} {
			for _, stall := range []time.Duration{0, late, lost} {
				what := fmt.Sprintf("after %d of %d bytes of the %s, stalled for %v (0s: cut)", after, size.bytes, size.name, stall)
				gone := f.proxy.Disturb(e2e.Fault{Answers: size.answers, After: after, Stall: stall})
				err := f.try(t.Context())
				select {
				case <-gone:
				case <-time.After(settleBound):
					t.Fatalf("%s: the fault never happened (creation: %v)", what, err)
				}
				f.createAll(t, what)
			}
		}
	}
}

// faulty is a Postern behind a proxy that disturbs the network.
type faulty struct {
	cluster   *e2e.Cluster
	proxy     *e2e.Proxy
	namespace string
}

func newFaulty(t *testing.T, flags ...string) *faulty {
	t.Helper()
	c := suite.Lend(t)
	f := &faulty{cluster: c, proxy: e2e.StartProxy(t), namespace: c.Namespace(t)}
	o := alwaysPull(flags...)
	o.Front = f.proxy.Addr()
	p := c.LaunchPostern(t, o)
	f.proxy.To(p.Addr())
	p.AwaitRegistered(t)
	awaitCalled(t, c)
	return f
}

// sizes returns how many bytes a review and its answer have on a connection that is open.
func (f *faulty) sizes(t *testing.T) (review, answer int) {
	t.Helper()
	f.create(t, "A creation that opens a connection")
	review, answer = -f.proxy.Passed(false), -f.proxy.Passed(true)
	f.create(t, "A creation on an open connection")
	return review + f.proxy.Passed(false), answer + f.proxy.Passed(true)
}

func (f *faulty) try(ctx context.Context) error {
	return pullsAlways(f.cluster.Admin.CoreV1().Pods(f.namespace).Create(ctx, pod("faulty"), dryRun()))
}

func (f *faulty) create(t *testing.T, what string) {
	t.Helper()
	if err := f.try(t.Context()); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// createAll creates pods, first in turn, then at once.
func (f *faulty) createAll(t *testing.T, what string) {
	t.Helper()
	for range creationsAfterAFault {
		f.create(t, what)
	}
	var all sync.WaitGroup
	for range creationsAfterAFault {
		all.Go(func() { f.create(t, what) })
	}
	all.Wait()
}
