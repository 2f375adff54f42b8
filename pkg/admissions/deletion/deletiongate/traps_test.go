package deletiongate_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/postern-dev/postern/internal/names"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	deletionv1alpha1 "github.com/postern-dev/postern/pkg/apis/deletion/v1alpha1"
)

// recorded returns the pod with a record.
func recorded(tb testing.TB, r deletionv1alpha1.Record) *corev1.Pod {
	tb.Helper()
	text, err := json.Marshal(map[string]deletionv1alpha1.Record{"database": r})
	if err != nil {
		tb.Fatal(err)
	}
	pod := thePod()
	pod.Annotations = map[string]string{deletionv1alpha1.WaitingAnnotation: string(text)}
	return pod
}

// at returns a time as the record has it.
func at(t time.Time) *metav1.Time { return new(metav1.NewTime(t.UTC().Truncate(time.Second))) }

// start is the time at which the clock of a cluster begins.
func start(tb testing.TB) time.Time {
	tb.Helper()
	env, err := (&admittest.Case{}).Environment()
	if err != nil {
		tb.Fatal(err)
	}
	return env.Clock.Now()
}

// failPatches lets all writes of records fail with the error that f returns.
func (c *cluster) failPatches(f func() error) {
	c.env.Metadata.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, f() })
}

// breakPatches lets all writes of records fail with a text while the result is true, as it is at first.
func (c *cluster) breakPatches(text string) *atomic.Bool {
	broken := &atomic.Bool{}
	broken.Store(true)
	c.env.Metadata.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return broken.Load(), nil, errors.New(text)
	})
	return broken
}

// TestAPodThatAlwaysChangesIsLetGo has a user change the pod all the time, so that no record is ever written. Whoever may
// edit a pod must not keep it for ever.
func TestAPodThatAlwaysChangesIsLetGo(t *testing.T) {
	ctx := admittest.Context(t)
	b := newBackend(t)
	c := newCluster(t, b.config(t, ""), thePod())
	c.failPatches(func() error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "db-0", errors.New("the object has been modified"))
	})
	h := c.replica(t)
	for _, step := range []time.Duration{0, 59 * time.Minute} {
		c.env.Clock.Step(step)
		if s := remove(ctx, t, h, c.pod(t), "alice"); s == nil || s.Code != http.StatusTooManyRequests || !strings.Contains(s.Message, "cannot be written: Operation cannot be fulfilled") {
			t.Errorf("Got %v before the longest wait, want a refusal", s)
		}
	}
	c.env.Clock.Step(time.Minute)
	if s := remove(ctx, t, h, c.pod(t), "alice"); s != nil {
		t.Errorf("Got %v after the longest wait, want no refusal", s)
	}
	if s := evict(ctx, t, h, "alice"); s != nil {
		t.Errorf("Got %v for an eviction after the longest wait, want no refusal", s)
	}
	if got := b.keys(); len(got) > 0 {
		t.Errorf("Got the preparations %q without a record, want none", got)
	}
}

// TestTheWaitBeginsWithTheFirstRefusal writes the record only half an hour after the first refusal.
func TestTheWaitBeginsWithTheFirstRefusal(t *testing.T) {
	ctx := admittest.Context(t)
	b := newBackend(t)
	c := newCluster(t, b.config(t, ""), thePod())
	broken := c.breakPatches("away")
	h := c.replica(t)
	if s := remove(ctx, t, h, c.pod(t), "alice"); s == nil || s.Code != http.StatusTooManyRequests {
		t.Errorf("Got %v without a record, want a refusal", s)
	}
	c.env.Clock.Step(30 * time.Minute)
	broken.Store(false)
	if s := remove(ctx, t, h, c.pod(t), "alice"); s == nil || !strings.Contains(s.Message, "has been closed for 30m0s of at most 1h0m0s") {
		t.Errorf("Got %v, want a refusal that counts from the first one", s)
	}
	c.env.Clock.Step(30 * time.Minute)
	if s := remove(ctx, t, c.replica(t), c.pod(t), "alice"); s != nil {
		t.Errorf("Got %v an hour after the first refusal, want no refusal", s)
	}
}

// TestALostPermissionLengthensNoWait has a record from before Postern lost the permission to write it. The backend has not
// answered yet, so the record would have to be written again.
func TestALostPermissionLengthensNoWait(t *testing.T) {
	ctx := admittest.Context(t)
	b := newBackend(t)
	now := start(t)
	c := newCluster(t, b.config(t, ""), recorded(t, deletionv1alpha1.Record{Since: *at(now.Add(-59 * time.Minute)), Claimed: at(now.Add(-59 * time.Minute))}))
	c.failPatches(func() error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "db-0", errors.New("no permission"))
	})
	h := c.replica(t)
	if s := remove(ctx, t, h, c.pod(t), "alice"); s == nil || s.Code != http.StatusTooManyRequests || !strings.HasSuffix(s.Message, "no permission") {
		t.Errorf("Got %v before the longest wait, want a refusal with the error of the API server", s)
	}
	c.env.Clock.Step(time.Minute)
	if s := remove(ctx, t, h, c.pod(t), "alice"); s != nil {
		t.Errorf("Got %v an hour after the first refusal, want no refusal", s)
	}
}

// TestAnAPIServerThatHangsIsNoTrap has every write of the record take longer than the request, for example because another
// webhook hangs.
func TestAnAPIServerThatHangsIsNoTrap(t *testing.T) {
	b := newBackend(t)
	c := newCluster(t, b.config(t, ""), thePod())
	var writes atomic.Int64
	ctx, cancel := context.WithCancel(admittest.Context(t))
	c.failPatches(func() error {
		writes.Add(1)
		cancel()
		return context.Canceled
	})
	h := c.replica(t)
	if s := remove(ctx, t, h, c.pod(t), "alice"); s == nil || s.Code != http.StatusTooManyRequests {
		t.Errorf("Got %v before the longest wait, want a refusal", s)
	}
	c.env.Clock.Step(time.Hour)
	sent := writes.Load()
	if s := remove(admittest.Context(t), t, h, c.pod(t), "alice"); s != nil {
		t.Errorf("Got %v after the longest wait, want no refusal", s)
	}
	if got := writes.Load(); got != sent {
		t.Errorf("Got %d writes after the longest wait, want none, because they hang", got-sent)
	}
}

// TestAnUnknownNodeIsNoTrap has an API server that does not say whether the node of the pod exists.
func TestAnUnknownNodeIsNoTrap(t *testing.T) {
	ctx := admittest.Context(t)
	b := newBackend(t)
	c := newCluster(t, b.config(t, ""), thePod())
	c.env.Client.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-1", errors.New("no permission"))
	})
	h := c.replica(t)
	for _, step := range []time.Duration{0, 59 * time.Minute} {
		c.env.Clock.Step(step)
		err := h.Validate(ctx, &admit.Request{AdmissionRequest: request("alice"), OldObject: c.pod(t)})
		if err == nil || admit.IsDenial(err) {
			t.Errorf("Got %v before the longest wait, want an error that is no denial", err)
		}
	}
	c.env.Clock.Step(time.Minute)
	if s := remove(ctx, t, h, c.pod(t), "alice"); s != nil {
		t.Errorf("Got %v after the longest wait, want no refusal", s)
	}
	if got := b.keys(); len(got) > 0 {
		t.Errorf("Got the preparations %q of a pod whose node is not known, want none", got)
	}
}

// TestARecordOfTheFutureEnds has records of a replica whose clock is years ahead.
func TestARecordOfTheFutureEnds(t *testing.T) {
	now := start(t)
	future := at(now.Add(100 * 365 * 24 * time.Hour))
	for name, r := range map[string]deletionv1alpha1.Record{
		"the first refusal":       {Since: *future, Claimed: future},
		"a started preparation":   {Since: *future, Claimed: future, Started: future},
		"only the last claim":     {Since: *at(now), Claimed: future},
		"a claim without answers": {Since: *at(now), Claimed: future, Failed: future},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := admittest.Context(t)
			b := newBackend(t)
			c := newCluster(t, b.config(t, ""), recorded(t, r))
			h := c.replica(t)
			if s := remove(ctx, t, h, c.pod(t), "alice"); s == nil || !strings.Contains(s.Message, "has been closed for 0s of at most 1h0m0s: shards are left") {
				t.Errorf("Got %v, want a refusal after the backend was asked", s)
			}
			got := c.record(t)
			if got.Since.After(now.Add(time.Second)) || got.Claimed == nil || got.Claimed.After(now.Add(time.Second)) || got.Started == nil {
				t.Errorf("Got the record %+v, want one of now", got)
			}
			c.env.Clock.Step(time.Hour)
			if s := remove(ctx, t, h, c.pod(t), "alice"); s != nil {
				t.Errorf("Got %v after the longest wait, want no refusal", s)
			}
		})
	}
}

// TestClocksThatDiffer has a record of a replica whose clock is a little ahead. It counts, and nothing is sent twice.
func TestClocksThatDiffer(t *testing.T) {
	ctx := admittest.Context(t)
	b := newBackend(t)
	ahead := at(start(t).Add(3 * time.Second))
	c := newCluster(t, b.config(t, ""), recorded(t, deletionv1alpha1.Record{Since: *ahead, Claimed: ahead}))
	h := c.replica(t)
	if s := remove(ctx, t, h, c.pod(t), "alice"); s == nil || !strings.Contains(s.Message, "its preparation is being started") {
		t.Errorf("Got %v, want a refusal that leaves the preparation to the other replica", s)
	}
	if got := c.record(t); !got.Since.Equal(ahead) || len(b.keys()) > 0 {
		t.Errorf("Got the record %+v and the preparations %q, want the record as it was and none", got, b.keys())
	}
}

// TestTheFirstRefusalHasNotWaited refuses between two full seconds, while the record has full seconds.
func TestTheFirstRefusalHasNotWaited(t *testing.T) {
	b := newBackend(t)
	c := newCluster(t, b.config(t, ""), thePod())
	c.env.Clock.Step(900 * time.Millisecond)
	if s := remove(admittest.Context(t), t, c.replica(t), c.pod(t), "alice"); s == nil || !strings.Contains(s.Message, "has been closed for 0s") {
		t.Errorf("Got %v, want a refusal that has not waited", s)
	}
}

// TestBackendsThatHangAreDecidedInTime has a pod with two gates whose backends do not answer, and one with a quick backend. A
// time-out of the request would end kubectl drain. The failure policy applies only if a backend had all of its time.
func TestBackendsThatHangAreDecidedInTime(t *testing.T) {
	hanging := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(hanging.Close)
	quick := newBackend(t)
	for name, tc := range map[string]struct{ policy, seconds, words string }{
		"closed":           {"Fail", "1", "the backend of the gate does not answer"},
		"open":             {"Ignore", "1", ""},
		"closed so far":    {"Fail", "25", "the backend of the gate has not answered yet"},
		"open but not yet": {"Ignore", "25", "the backend of the gate has not answered yet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate := func(name, url string) string {
				return "{name: " + name + ", selector: {matchLabels: {app: db}}, backend: {kubeConfigFile: " + kubeconfig(t, url) + ", timeoutSeconds: " + tc.seconds + ", failurePolicy: " + tc.policy + "}}"
			}
			config := "{gates: [" + gate("a", hanging.URL) + "," + gate("b", hanging.URL) + "," + gate("c", quick.URL) + "]}"
			c := newCluster(t, []byte(config), thePod())
			h := c.replica(t)
			ctx, cancel := context.WithTimeout(admittest.Context(t), 3*time.Second)
			defer cancel()
			s := remove(ctx, t, h, c.pod(t), "alice")
			if ctx.Err() != nil {
				t.Error("The decision came too late")
			}
			if s == nil || !strings.Contains(s.Message, `gate "c" has been closed for 0s of at most 1h0m0s: shards are left`) {
				t.Errorf("Got %v, want a refusal because of the quick backend", s)
			}
			for _, name := range []string{"a", "b"} {
				if want := `gate "` + name + `" has been closed for 0s of at most 1h0m0s: ` + tc.words; s != nil && strings.Contains(s.Message, want) != (tc.words != "") {
					t.Errorf("Got %q, want %q: %t", s.Message, want, tc.words != "")
				}
			}
		})
	}
}

// TestAShortRequestOpensNoGate has a user choose a time for the request (?timeout=) that is shorter than the answer of the
// backend, whose failure policy is Ignore.
func TestAShortRequestOpensNoGate(t *testing.T) {
	slow := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(500 * time.Millisecond)
		_, _ = io.WriteString(w, `{"apiVersion": "deletion.postern.dev/v1alpha1", "kind": "DeletionReview", "response": {"uid": "6ba7b810", "message": "shards are left"}}`)
	}))
	t.Cleanup(slow.Close)
	config := "{gates: [{name: database, selector: {matchLabels: {app: db}}, backend: {kubeConfigFile: " + kubeconfig(t, slow.URL) + ", failurePolicy: Ignore}}]}"
	c := newCluster(t, []byte(config), thePod())
	h := c.replica(t)
	for range 3 {
		ctx, cancel := context.WithTimeout(admittest.Context(t), 300*time.Millisecond)
		if err := h.Validate(ctx, &admit.Request{AdmissionRequest: request("alice"), OldObject: c.pod(t)}); err == nil {
			t.Error("A short request opens the gate")
		}
		cancel()
		c.env.Clock.Step(30 * time.Second)
	}
	if got := c.record(t); got.Failed != nil {
		t.Errorf("Got the record %+v, want no failure of the backend", got)
	}
	if s := remove(admittest.Context(t), t, h, c.pod(t), "alice"); s == nil || !strings.Contains(s.Message, "shards are left") {
		t.Errorf("Got %v, want a refusal with the answer of the backend", s)
	}
}

// TestNamesThatNothingHas has an eviction, and a pod on a node, with a name that a client refuses to look up. There is no such
// pod, and no such node.
func TestNamesThatNothingHas(t *testing.T) {
	ctx := admittest.Context(t)
	c := newCluster(t, newBackend(t).config(t, ""), thePod())
	h := c.replica(t)
	c.env.Client.PrependReactor("get", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		name := a.(clienttesting.GetAction).GetName()
		return !names.CanExist(name), nil, errors.New("invalid resource name")
	})
	r := request("alice")
	r.Operation, r.SubResource, r.Name = admissionv1.Create, "eviction", "%"
	if err := h.Validate(ctx, &admit.Request{AdmissionRequest: r, Object: &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "%", Namespace: "shop"}}}); err != nil {
		t.Errorf("Got %v for an eviction, want that the API server finds no pod", err)
	}
	pod := thePod()
	pod.Spec.NodeName = "a/b"
	if s := remove(ctx, t, h, pod, "alice"); s != nil {
		t.Errorf("Got %v for a pod whose node cannot exist, want that it is let go", s)
	}
}
