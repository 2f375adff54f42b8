package limitranger

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/postern-dev/postern/internal/heap"
	"github.com/postern-dev/postern/internal/reads"
)

// account counts what is held, and has room for some bytes.
type account struct {
	reads.Account

	held, room int64
}

func (a *account) Fits(n int64) bool { return n <= a.room }

func (a *account) Hold(_ context.Context, n int64) error {
	a.held += n
	return nil
}

// podOf returns a pod with n containers without resources.
func podOf(n int) *corev1.Pod {
	pod := &corev1.Pod{}
	for i := range n {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: "i"})
	}
	return pod
}

// defaults returns a LimitRange with the same default for some resources, as limits or requests.
func defaults(limits bool, names ...string) *corev1.LimitRange {
	list := corev1.ResourceList{}
	for _, name := range names {
		list[corev1.ResourceName(name)] = resource.MustParse("1")
	}
	item := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer}
	if limits {
		item.Default = list
	} else {
		item.DefaultRequest = list
	}
	return &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
}

// TestWhatIsHeldForDefaults compares what is held with what the defaults take.
func TestWhatIsHeldForDefaults(t *testing.T) {
	many := strings.Fields("cpu memory ephemeral-storage a.example/1 a.example/2 a.example/3 a.example/4 a.example/5 a.example/6")
	one := podOf(2_000)
	for i := range one.Spec.Containers {
		one.Spec.Containers[i].Resources.Limits = defaults(true, many[1:]...).Spec.Limits[0].Default // a map of its own
	}
	for name, tc := range map[string]struct {
		pod    *corev1.Pod
		ranges []*corev1.LimitRange
	}{
		"one limit":                            {podOf(10_000), []*corev1.LimitRange{defaults(true, "cpu")}},
		"limits and requests":                  {podOf(5_000), []*corev1.LimitRange{defaults(true, "cpu", "memory"), defaults(false, "cpu", "memory")}},
		"many limits":                          {podOf(3_000), []*corev1.LimitRange{defaults(true, many...)}},
		"a ninth limit":                        {one, []*corev1.LimitRange{defaults(true, many...)}},
		"two LimitRanges for one map":          {podOf(5_000), []*corev1.LimitRange{defaults(true, "cpu"), defaults(true, "memory")}},
		"two LimitRanges for one resource":     {podOf(5_000), []*corev1.LimitRange{defaults(true, "cpu"), defaults(true, "cpu")}},
		"two LimitRanges and a map that grows": {podOf(3_000), []*corev1.LimitRange{defaults(true, many[:4]...), defaults(true, many[4:]...)}},
	} {
		a := &account{room: 1 << 30}
		if err := hold(reads.NewContext(t.Context(), a), tc.pod, tc.ranges); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		took := heap.Kept(func() any {
			for _, lr := range tc.ranges {
				setDefaults(tc.pod, lr)
			}
			return tc.pod
		})
		// A map that grows takes as much as a new one, but leaves the memory of the old one.
		if a.held < took || a.held > 5*took/2 {
			t.Errorf("%s: held %d bytes for %d", name, a.held, took)
		}
	}
}

// TestAPodThatCannotBeStoredWithDefaults is denied before it takes the memory for them.
func TestAPodThatCannotBeStoredWithDefaults(t *testing.T) {
	cpu := []*corev1.LimitRange{defaults(true, "cpu"), defaults(false, "cpu")}
	for _, tc := range []struct {
		name       string
		containers int
		ranges     []*corev1.LimitRange
		room       int64
		want       string
	}{
		{"few", 30, cpu, 1 << 30, ""},
		{"many", 30_000, cpu, 1 << 30, ""},
		{"too many", 40_000, cpu, 1 << 30, "the pod takes more than the 1572864 bytes that can be stored"},
		{"too many without defaults", 70_000, []*corev1.LimitRange{defaults(true)}, 0, ""},
		{"more than a request may have", 10_000, cpu, 8 << 20, "takes 16 MiB of memory"},
		{"what need not be held", 5, cpu, 0, ""},
	} {
		pod := podOf(tc.containers)
		err := hold(reads.NewContext(t.Context(), &account{room: tc.room}), pod, tc.ranges)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: got %v, want no error", tc.name, err)
		case tc.want != "" && (!apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}
