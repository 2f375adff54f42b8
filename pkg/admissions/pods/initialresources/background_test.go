package initialresources

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/pkg/admissions/pods/initialresources/internal/usage"
	"github.com/postern-dev/postern/pkg/admit"
)

// sourceFunc is a source in one function.
type sourceFunc func(context.Context, usage.Query) (usage.Answer, error)

func (f sourceFunc) Percentile(ctx context.Context, q usage.Query) (usage.Answer, error) {
	return f(ctx, q)
}

// slow answers every query with enough samples after a time.
func slow(after time.Duration, asked *atomic.Int64) sourceFunc {
	return func(ctx context.Context, _ usage.Query) (usage.Answer, error) {
		asked.Add(1)
		select {
		case <-time.After(after):
			return usage.Answer{Value: 7, Samples: usage.Enough}, nil
		case <-ctx.Done():
			return usage.Answer{}, ctx.Err()
		}
	}
}

func newBackground(t *testing.T, source usage.Source, size, concurrent int) *plugin {
	t.Helper()
	b := &background{clock: clock.RealClock{}, refresh: 10 * time.Minute}
	if _, err := b.start(source, size, concurrent, metrics.NewKubeRegistry()); err != nil {
		t.Fatal(err)
	}
	return &plugin{estimator: b, maximum: map[corev1.ResourceName]int64{corev1.ResourceCPU: 100, corev1.ResourceMemory: 100}}
}

// create sends the plugin a pod with containers of these images, and returns how long that took and how many requests
// the containers have after it.
func create(t *testing.T, p *plugin, namespace string, images ...string) (took time.Duration, requests int) {
	t.Helper()
	pod := &corev1.Pod{}
	for i, image := range images {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: image})
	}
	return send(t, p, namespace, pod)
}

func send(t *testing.T, p *plugin, namespace string, pod *corev1.Pod) (took time.Duration, requests int) {
	t.Helper()
	start := time.Now()
	r := &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{Namespace: namespace}, Object: pod}
	if err := p.mutate(t.Context(), r, pod, nil); err != nil {
		t.Errorf("Got %v, want no error whatever the source does", err)
	}
	for _, c := range pod.Spec.Containers {
		requests += len(c.Resources.Requests)
	}
	return time.Since(start), requests
}

// TestASlowSourceDelaysAPodOnce has a source that needs seconds. Both calls for a pod with many images take 200 ms
// together, and the answer is there for a later pod.
func TestASlowSourceDelaysAPodOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		p := newBackground(t, slow(3*time.Second, &asked), 100, 100)
		images := []string{"a", "b", "c", "d", "e", "f"}
		first, got := create(t, p, "shop", images...)
		second, _ := create(t, p, "shop", append(images, "sidecar")...)
		if took := first + second; took > 200*time.Millisecond || got != 0 {
			t.Errorf("Got %d requests after %v and %v, want none after 200ms", got, first, second)
		}
		time.Sleep(4 * time.Second)
		if took, got := create(t, p, "shop", images...); took != 0 || got != 2*len(images) {
			t.Errorf("Got %d requests after %v, want %d at once", got, took, 2*len(images))
		}
		if n := asked.Load(); n != 2*7 {
			t.Errorf("Got %d queries, want one for each resource of each image", n)
		}
	})
}

// TestAQuickSourceIsWaitedFor has all queries of a pod run at the same time.
func TestAQuickSourceIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		p := newBackground(t, slow(60*time.Millisecond, &asked), 100, 100)
		if took, got := create(t, p, "shop", "a", "b", "c"); took != 60*time.Millisecond || got != 6 {
			t.Errorf("Got %d requests after %v, want 6 after 60ms", got, took)
		}
	})
}

// TestAnAbsentSourceIsAskedAgainLater has a source that fails, then answers, then fails again.
func TestAnAbsentSourceIsAskedAgainLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		var away atomic.Bool
		away.Store(true)
		p := newBackground(t, sourceFunc(func(ctx context.Context, q usage.Query) (usage.Answer, error) {
			asked.Add(1)
			if away.Load() {
				return usage.Answer{}, errors.New("away")
			}
			return usage.Answer{Value: 7, Samples: usage.Enough}, nil
		}), 100, 4)
		step := func(what string, wait time.Duration, wantRequests int, wantAsked int64) {
			t.Helper()
			time.Sleep(wait)
			took, got := create(t, p, "shop", "a")
			synctest.Wait()
			if took != 0 || got != wantRequests || asked.Swap(0) != wantAsked {
				t.Errorf("%s: got %d requests after %v, want %d at once and %d queries", what, got, took, wantRequests, wantAsked)
			}
		}
		step("away", 0, 0, 2)
		step("away, and asked a moment ago", retryInterval-1, 0, 0)
		away.Store(false)
		step("back", 1, 2, 2)
		step("cached", 10*time.Minute-1, 2, 0)
		step("refreshed", 1, 2, 2)
		away.Store(true)
		step("away again, with an old answer", 10*time.Minute, 2, 2)
		step("away for long, with an old answer", maxAge-10*time.Minute-1, 2, 2)
		step("away for too long", retryInterval, 0, 2)
	})
}

// TestTheSearchGoesOnWithoutThePod has too few samples in the namespace, and a pod that does not wait.
func TestTheSearchGoesOnWithoutThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newBackground(t, sourceFunc(func(ctx context.Context, q usage.Query) (usage.Answer, error) {
			time.Sleep(time.Second)
			if q.Namespace != "" {
				return usage.Answer{Value: 1, Samples: 1}, nil
			}
			return usage.Answer{Value: 7, Samples: usage.Enough}, nil
		}), 100, 100)
		create(t, p, "shop", "a")
		time.Sleep(10 * time.Second)
		if took, got := create(t, p, "shop", "a"); took != 0 || got != 2 {
			t.Errorf("Got %d requests after %v, want 2 at once", got, took)
		}
	})
}

// TestBounds has users choose many images while the source does not answer.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		p := newBackground(t, sourceFunc(func(ctx context.Context, _ usage.Query) (usage.Answer, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-ctx.Done()
			return usage.Answer{}, ctx.Err()
		}), 10, 4)
		b := p.estimator.(*background)
		pending := func() (all, namespaces int) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.all, len(b.pending)
		}
		for i := range 100 {
			if took, _ := create(t, p, "attacker", fmt.Sprint("image", 2*i), fmt.Sprint("image", 2*i+1)); took > patience {
				t.Fatalf("A pod took %v", took)
			}
		}
		if all, _ := pending(); all != maxPendingHere {
			t.Errorf("Got %d pending answers for one namespace, want %d", all, maxPendingHere)
		}
		create(t, p, "shop", "mine")
		if all, _ := pending(); all != maxPendingHere+2 {
			t.Errorf("Got %d pending answers, want those of the other namespace too", all)
		}
		for i := range 1000 {
			create(t, p, fmt.Sprint("attacker", i), fmt.Sprint("image", i))
		}
		if all, _ := pending(); all > maxPending || b.entries.Len() > 10 || most.Load() > 4 {
			t.Errorf("Got %d pending answers, %d entries and %d queries at a time", all, b.entries.Len(), most.Load())
		}
		time.Sleep(2 * askTimeout)
		synctest.Wait()
		if all, namespaces := pending(); all != 0 || namespaces != 0 {
			t.Errorf("Got %d pending answers of %d namespaces after the timeout", all, namespaces)
		}
	})
}

// TestAPodWithManyContainersIsLeftAlone has the largest pods that the plugin handles, and larger ones.
func TestAPodWithManyContainersIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		p := newBackground(t, slow(0, &asked), 100, 100)
		create(t, p, "shop", "a")
		images := make([]string, maxContainers+1)
		for i := range images {
			images[i] = "a"
		}
		if _, got := create(t, p, "shop", images...); got != 0 {
			t.Errorf("Got %d requests for %d containers, want none", got, len(images))
		}
		if _, got := create(t, p, "shop", images[1:]...); got != 2*maxContainers {
			t.Errorf("Got %d requests for %d containers, want all", got, maxContainers)
		}
	})
}

// TestThePodIsLeftAloneIfTheAnnotationHasNoRoom has annotations of the size that the API server accepts at most.
func TestThePodIsLeftAloneIfTheAnnotationHasNoRoom(t *testing.T) {
	p := &plugin{estimator: &direct{source: slow(0, new(atomic.Int64))}, maximum: map[corev1.ResourceName]int64{corev1.ResourceCPU: 100}}
	for size, want := range map[int]int{256<<10 - 10: 0, 200 << 10: 1} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "a"}}}}
		pod.Annotations = map[string]string{"x": string(make([]byte, size))}
		if _, got := send(t, p, "shop", pod); got != want || len(pod.Annotations) != 1+want {
			t.Errorf("Got %d requests and %d annotations beside one of %d bytes, want %d requests", got, len(pod.Annotations), size, want)
		}
	}
}
