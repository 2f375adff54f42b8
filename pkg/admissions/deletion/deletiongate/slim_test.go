package deletiongate

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/postern-dev/postern/internal/reads"
)

// queued is an account that counts how often its request waits for others.
type queued struct {
	reads.Detached

	times int
}

func (q *queued) Queued() { q.times++ }

// TestAPodIsSlim covers the pods that wait for backends: their authors choose how large the rest of them is.
func TestAPodIsSlim(t *testing.T) {
	client := fake.NewClientset(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "node-1", Affinity: &corev1.Affinity{}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}).CoreV1()
	pod, err := get(t.Context(), client.Pods("shop"), "web", "")
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{client: client, patching: semaphore.NewWeighted(1)}
	a := &queued{Detached: func() (reads.Account, func()) { return &queued{}, func() {} }}
	patched, err := k.patch(reads.NewContext(t.Context(), a), pod, entries{})
	if err != nil {
		t.Fatal(err)
	}
	if a.times != 1 {
		t.Errorf("Noted %d times that the request waits for its write, want once", a.times)
	}
	for _, got := range []*corev1.Pod{pod, patched} {
		if got.Spec.Affinity != nil || got.Spec.NodeName != "node-1" || got.Labels["app"] != "web" || got.Status.Phase != corev1.PodRunning {
			t.Errorf("Got %+v", got)
		}
	}
	if !k.patching.TryAcquire(1) {
		t.Fatal("A patch that was written still counts")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.patch(reads.NewContext(ctx, a), pod, entries{}); !errors.Is(err, context.Canceled) || a.times != 2 {
		t.Errorf("Got the error %v while others are being changed, and noted %d times that it waits, want twice", err, a.times)
	}
}
