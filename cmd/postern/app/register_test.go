package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/postern-dev/postern/internal/segment"
	"github.com/postern-dev/postern/pkg/registration"
)

// TestAReplicaThatDoesNotBecomeReadySaysWhy checks that the reason is in /readyz at once, and in an Event when it has lasted or
// changed.
func TestAReplicaThatDoesNotBecomeReadySaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var why error
		dyn := dynamicfake.NewSimpleDynamicClient(scheme.Scheme)
		dyn.PrependReactor("list", "mutatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, why })
		fleet := registration.NewFleet(dyn, registration.FleetOptions{Namespace: "postern-system", Name: "postern-1"})
		p := &process{registrar: registration.NewRegistrar(dyn, registration.Deployment{Namespace: "postern-system"}, nil, noBundle{}, segment.New(func() [][]byte { return nil }), fleet, nil)}
		prepared, events := newFlagged(errors.New("not yet")), record.NewFakeRecorder(100)
		check := func(when, ready string, told ...string) {
			t.Helper()
			synctest.Wait()
			if err := prepared.ready(); err == nil || !strings.Contains(err.Error(), ready) {
				t.Errorf("%s: got %v, want the reason %q", when, err, ready)
			}
			var got []string
			for len(events.Events) > 0 {
				got = append(got, <-events.Events)
			}
			if !slices.EqualFunc(got, told, strings.Contains) {
				t.Errorf("%s: got the Events %q, want %q", when, got, told)
			}
		}
		why = errors.New("first")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan bool, 1)
		go func() { done <- p.prepareRegistration(ctx, fleet, prepared, events) }()
		check("At once", "first")
		time.Sleep(preparePatience)
		check("A moment before", "first")
		time.Sleep(2 * reachPause)
		check("Lasting", "first", "Warning NotRegistered The replica does not become ready: listing")
		why = errors.New("second")
		time.Sleep(prepareNews - 5*time.Second)
		check("Changed", "second")
		time.Sleep(10 * time.Second)
		check("For a while", "second", "second")
		time.Sleep(prepareReminder - 10*time.Second)
		check("Known", "second")
		time.Sleep(20 * time.Second)
		check("Still", "second", "second")
		cancel()
		if <-done {
			t.Error("Got prepared after the end")
		}
	})
}
