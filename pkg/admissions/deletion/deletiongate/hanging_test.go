package deletiongate

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/pkg/admit"
)

// hanging is an API server whose changes of pods do not end, because of other webhooks. With conflict they are refused, and reads
// of pods do not end.
type hanging struct {
	typedcorev1.PodInterface

	conflict bool
	// patching is how many changes are being made, and sent how many were.
	patching, sent atomic.Int64
}

func (h *hanging) Pods(string) typedcorev1.PodInterface { return h }

func (h *hanging) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*corev1.Pod, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (h *hanging) patch(ctx context.Context, name string, _ []byte) (*metav1.PartialObjectMetadata, error) {
	if h.conflict {
		return nil, apierrors.NewConflict(corev1.Resource("pods"), name, errors.New("the object has been modified"))
	}
	h.sent.Add(1)
	h.patching.Add(1)
	defer h.patching.Add(-1)
	<-ctx.Done()
	return nil, ctx.Err()
}

// patcher is a client that only patches.
type patcher struct {
	metadata.Getter

	patch func(ctx context.Context, name string, patch []byte) (*metav1.PartialObjectMetadata, error)
}

func (p patcher) Resource(schema.GroupVersionResource) metadata.Getter { return p }

func (p patcher) Namespace(string) metadata.ResourceInterface { return p }

func (p patcher) Patch(ctx context.Context, name string, _ types.PatchType, patch []byte, _ metav1.PatchOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	return p.patch(ctx, name, patch)
}

// newHanging returns DeletionGate with a gate for all pods, in a cluster with an API server that hangs.
func newHanging(t *testing.T, h *hanging) *plugin {
	t.Helper()
	client := fake.NewClientset(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}},
	)
	gates, err := load([]byte("{gates: [{name: ready, selector: {matchLabels: {app: db}}, podCondition: example.com/ready}]}"))
	if err != nil {
		t.Fatal(err)
	}
	k, err := newKeeper(admit.Deps{
		Client: client, Informers: informers.NewSharedInformerFactory(client, 0), Clock: clock.RealClock{}, Go: func(f func(context.Context)) { go f(t.Context()) },
	}, gates)
	if err != nil {
		t.Fatal(err)
	}
	k.client, k.metadata = h, patcher{patch: h.patch}
	return &plugin{gates: gates, keeper: k}
}

func hangingPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(name), Labels: map[string]string{"app": "db"}},
		Spec:       corev1.PodSpec{NodeName: "node-1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

const silent = "there is no answer of the API server"

// TestAWriteThatHangsIsDenied deletes more pods than are changed at a time. The requests must be denied before they end, because
// then the failure policy would let those of the control plane pass, which users make delete pods.
func TestAWriteThatHangsIsDenied(t *testing.T) {
	for name, tc := range map[string]struct {
		conflict bool
		reasons  []string
		patching int64
		// watched is how many pods are asked about again: those that could not be written because of others.
		watched int
	}{
		"the write": {false, []string{silent, silent, "too many changes of this kind are being made"}, 2, 1},
		"the read":  {true, []string{silent}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hanging{conflict: tc.conflict}
				p := newHanging(t, h)
				var all []chan error
				for i := range tc.reasons {
					// The last one waits for the others, and ends before them.
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(10-i)*time.Second)
					defer cancel()
					ended := make(chan error, 1)
					all = append(all, ended)
					r := &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{Operation: admissionv1.Delete}}
					r.UserInfo.Username = "system:serviceaccount:kube-system:generic-garbage-collector"
					r.OldObject = hangingPod(string(rune('a' + i)))
					go func() {
						err := p.validate(ctx, r)
						if ctx.Err() != nil {
							t.Error("The decision came too late")
						}
						ended <- err
					}()
					synctest.Wait()
				}
				if got := h.patching.Load(); got != tc.patching {
					t.Errorf("Got %d changes at a time, want %d", got, tc.patching)
				}
				for i, ended := range all {
					err := <-ended
					d, ok := errors.AsType[*admit.Denial](err)
					want := `gate "ready" has been closed for 0s of at most 1h0m0s: the annotation deletion.postern.dev/waiting cannot be written: ` + tc.reasons[i]
					if !ok || !apierrors.IsTooManyRequests(err) || !strings.Contains(d.Status().Message, want) {
						t.Errorf("Got %v, want a refusal with %q", err, want)
					}
				}
				if got := len(p.keeper.waiting.pods); got != tc.watched {
					t.Errorf("Got %d pods that are asked about again, want %d", got, tc.watched)
				}
			})
		})
	}
}

// TestAPreparationThatCannotBeRecordedIsDecided has the second change of the pod hang.
func TestAPreparationThatCannotBeRecordedIsDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{}
		k := newHanging(t, h).keeper
		pod := hangingPod("db-0")
		pod.Annotations = map[string]string{"deletion.postern.dev/waiting": `{"ready": {"since": "2026-01-01T00:00:00Z"}}`}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		k.markPrepared(ctx, k.requests.Then, pod, map[string]bool{"ready": true}, time.Now())
		if ctx.Err() != nil || h.sent.Load() != 1 {
			t.Errorf("Sent %d changes, and the request has the end %v; want one that ends before", h.sent.Load(), ctx.Err())
		}
	})
}

// TestAPodWithARecordIsAskedAboutAgain has the preparation be claimed again, which is not written.
func TestAPodWithARecordIsAskedAboutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{}
		p := newHanging(t, h)
		p.gates[0].backend = &backend{timeout: time.Second}
		pod := hangingPod("db-0")
		since := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
		pod.Annotations = map[string]string{"deletion.postern.dev/waiting": `{"ready": {"since": "` + since + `", "claimed": "` + since + `"}}`}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := p.decide(ctx, &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{}}, pod, asker{cause: "Delete"}, false)
		if d, ok := errors.AsType[*admit.Denial](err); !ok || h.sent.Load() != 1 || !strings.Contains(d.Status().Message, "closed for 1m4s of at most 1h0m0s") || !strings.Contains(d.Status().Message, silent) {
			t.Errorf("Got %v after %d changes, want a refusal after one", err, h.sent.Load())
		}
		if got := len(p.keeper.waiting.pods); got != 1 {
			t.Errorf("Got %d pods that are asked about again, want 1", got)
		}
		p.keeper.client = &stored{h, pod}
		if done, _, err := p.keeper.waiting.isOpen(t.Context(), key{"shop", "db-0", pod.UID}); done {
			t.Errorf("Got %t and %v, want that the pod is asked about again", done, err)
		}
	})
}

// writable is an API server that changes the pod at once.
type writable struct {
	*stored

	changes int
}

func (w *writable) Pods(string) typedcorev1.PodInterface { return w }

func (w *writable) patch(_ context.Context, _ string, patch []byte) (*metav1.PartialObjectMetadata, error) {
	w.changes++
	err := json.Unmarshal(patch, w.pod)
	return meta.AsPartialObjectMetadata(w.pod.DeepCopy()), err
}

// answering is a backend whose gate is open. It is called before it answers.
type answering func()

// RoundTrip implements http.RoundTripper.
func (f answering) RoundTrip(*http.Request) (*http.Response, error) {
	f()
	const open = `{"apiVersion": "deletion.postern.dev/v1alpha1", "kind": "DeletionReview", "response": {"uid": "db-0", "ready": true}}`
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(open))}, nil
}

// TestOthersDoNotKeepARecordWaiting has the limits be full to which the changes of a record are not subject: those of the
// background for a request, and the other way round, and that of first changes for the others. A change that is not made in time
// leads to another request to prepare.
func TestOthersDoNotKeepARecordWaiting(t *testing.T) {
	for _, isRequest := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			fill := func(limits ...turn) {
				for _, in := range limits {
					for range maxPatching + 100 {
						go func() {
							_ = in(t.Context(), func() error {
								<-t.Context().Done()
								return nil
							})
						}()
					}
				}
				synctest.Wait()
			}
			pod := hangingPod("db-0")
			w := &writable{stored: &stored{pod: pod}}
			p := newHanging(t, nil)
			k := p.keeper
			k.client, k.metadata = w, patcher{patch: w.patch}
			own, other := k.background, k.requests
			if isRequest {
				own, other = other, own
			}
			fill(other.Do, other.Then)
			p.gates[0].backend = newBackend(&http.Client{Transport: answering(func() { fill(own.Do) })}, "http://backend.example.com", time.Second, false)
			start := time.Now()
			// The preparation is claimed and answered. The background also marks the pod.
			want := 3
			if isRequest {
				want = 2
				if err := p.decide(t.Context(), &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{}}, pod.DeepCopy(), asker{cause: "Delete"}, false); err != nil {
					t.Errorf("Got %v, want that the pod may go", err)
				}
			} else if done, _, err := k.waiting.isOpen(t.Context(), key{"shop", "db-0", pod.UID}); !done || err != nil {
				t.Errorf("Got %t and %v, want that the pod may go", done, err)
			}
			if w.changes != want || time.Since(start) > 0 {
				t.Errorf("A request: %t: %d changes were made after %v, want %d at once: %v", isRequest, w.changes, time.Since(start), want, pod.Annotations)
			}
		})
	}
}

// TestAPodExpiresWhileItsRecordIsWritten has the longest wait end then.
func TestAPodExpiresWhileItsRecordIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{}
		p := newHanging(t, h)
		pod := hangingPod("db-0")
		p.keeper.client = &stored{h, pod}
		p.keeper.remember(pod)
		time.Sleep(p.gates[0].MaxWait.Duration - time.Second)
		if done, _, err := p.keeper.waiting.isOpen(t.Context(), key{"shop", "db-0", pod.UID}); !done || err != nil || h.sent.Load() != 1 {
			t.Errorf("Got %t and %v after %d changes, want that the pod is forgotten after one", done, err, h.sent.Load())
		}
	})
}

// TestTheBackgroundChangesOnePod has more than one pod to change on its own account.
func TestTheBackgroundChangesOnePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{}
		p := newHanging(t, h)
		p.keeper.client = &stored{h, hangingPod("db-0")}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range maxAsking {
			go p.keeper.waiting.look(ctx, key{"shop", "db-0", "db-0"})
		}
		synctest.Wait()
		if got := h.patching.Load(); got != 1 {
			t.Errorf("Got %d changes at a time, want 1", got)
		}
	})
}

// TestAPodIsNotAskedAboutForEver has a pod that cannot be marked. It is asked about again until its longest wait is over, but only
// once if it has no record.
func TestAPodIsNotAskedAboutForEver(t *testing.T) {
	for name, tc := range map[string]struct {
		since time.Duration
		done  bool
	}{"open": {time.Minute, false}, "expired": {time.Hour, true}, "without a record": {0, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hanging{}
				p := newHanging(t, h)
				pod := hangingPod("db-0")
				if tc.since > 0 {
					pod.Annotations = map[string]string{"deletion.postern.dev/waiting": `{"ready": {"since": "` + time.Now().Add(-tc.since).UTC().Format(time.RFC3339) + `"}}`}
				}
				pod.Status.Conditions = []corev1.PodCondition{{Type: "example.com/ready", Status: corev1.ConditionTrue}}
				p.keeper.client = &stored{h, pod}
				start := time.Now()
				done, _, err := p.keeper.waiting.isOpen(t.Context(), key{"shop", "db-0", pod.UID})
				if done != tc.done || (tc.since > 0) != errors.Is(err, context.DeadlineExceeded) || h.sent.Load() != 1 {
					t.Errorf("Got %t and %v after %d changes, want that the pod is forgotten: %t", done, err, h.sent.Load(), tc.done)
				}
				if got := time.Since(start); got >= 10*time.Second {
					t.Errorf("The write takes %v, want less than a request with the default time-out", got)
				}
			})
		})
	}
}

// TestOneOfTwoGatesHasExpired has a pod without a record whose first gate has been closed for its longest wait.
func TestOneOfTwoGatesHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newHanging(t, &hanging{})
		short := *p.gates[0]
		short.Name, short.MaxWait.Duration = "short", time.Minute
		p.gates = append(p.gates, &short)
		pod := hangingPod("db-0")
		p.keeper.remember(pod)
		time.Sleep(time.Minute)
		v := p.keeper.unwritten(t.Context(), pod, p.gates, context.DeadlineExceeded)
		if len(v.waits) != 1 || v.waits[0].gate.Name != "ready" || len(v.passes) != 1 || v.passes[0].result != resultMaxWait {
			t.Errorf("Got %+v, want that the pod waits for the other gate alone", v)
		}
	})
}

// stored is an API server from which the pod can be read.
type stored struct {
	*hanging

	pod *corev1.Pod
}

func (s *stored) Pods(string) typedcorev1.PodInterface { return s }

func (s *stored) Get(context.Context, string, metav1.GetOptions) (*corev1.Pod, error) {
	return s.pod.DeepCopy(), nil
}
