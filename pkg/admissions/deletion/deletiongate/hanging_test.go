package deletiongate

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
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

func (h *hanging) Patch(ctx context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Pod, error) {
	if h.conflict {
		return nil, apierrors.NewConflict(corev1.Resource("pods"), name, errors.New("the object has been modified"))
	}
	h.sent.Add(1)
	h.patching.Add(1)
	defer h.patching.Add(-1)
	<-ctx.Done()
	return nil, ctx.Err()
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
	k.client = h
	return &plugin{gates: gates, keeper: k}
}

func hangingPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(name), Labels: map[string]string{"app": "db"}},
		Spec:       corev1.PodSpec{NodeName: "node-1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// TestAWriteThatHangsIsDenied deletes more pods than are changed at a time. The requests must be denied before they end, because
// then the failure policy would let those of the control plane pass, which users make delete pods.
func TestAWriteThatHangsIsDenied(t *testing.T) {
	for name, tc := range map[string]struct {
		conflict bool
		reasons  []string
		patching int64
	}{
		"the write": {false, []string{"context deadline exceeded", "context deadline exceeded", "too many changes of this kind are being made"}, 2},
		"the read":  {true, []string{"reading the pod: context deadline exceeded"}, 0},
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
						ended <- p.validate(ctx, r)
						if ctx.Err() != nil {
							t.Error("The decision came too late")
						}
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
		k.markPrepared(ctx, k.requests.Wait, pod, map[string]bool{"ready": true}, time.Now())
		if ctx.Err() != nil || h.sent.Load() != 1 {
			t.Errorf("Sent %d changes, and the request has the end %v; want one that ends before", h.sent.Load(), ctx.Err())
		}
	})
}

// TestAPodIsNotAskedAboutForEver has a pod that cannot be marked. It is asked about again until its longest wait is over.
func TestAPodIsNotAskedAboutForEver(t *testing.T) {
	for name, tc := range map[string]struct {
		since time.Duration
		done  bool
	}{"open": {time.Minute, false}, "expired": {time.Hour, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hanging{}
				p := newHanging(t, h)
				pod := hangingPod("db-0")
				pod.Annotations = map[string]string{"deletion.postern.dev/waiting": `{"ready": {"since": "` + time.Now().Add(-tc.since).UTC().Format(time.RFC3339) + `"}}`}
				pod.Status.Conditions = []corev1.PodCondition{{Type: "example.com/ready", Status: corev1.ConditionTrue}}
				p.keeper.client = &stored{h, pod}
				start := time.Now()
				done, _, err := p.keeper.waiting.isOpen(t.Context(), key{"shop", "db-0", pod.UID})
				if done != tc.done || !errors.Is(err, errUnwritten) || h.sent.Load() != 1 {
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
		v := p.keeper.unwritten(t.Context(), pod, p.gates, errUnwritten)
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
