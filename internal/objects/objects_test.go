package objects_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/internal/objects"
	"github.com/postern-dev/postern/internal/quantities"
)

// TestFarQuantities covers quantities for which sigs.k8s.io/json takes hours, in plain text and in other text, which API
// servers do not write.
func TestFarQuantities(t *testing.T) {
	kind := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	pod := func(name, cpu string) []byte {
		return []byte(`{"metadata":{"name":"` + name + `"},"spec":{"overhead":{"cpu":"` + cpu + `"}}}`)
	}
	const other = `\ud83d\ude00`
	for _, cpu := range []string{"1e1000000000", "1e-1000000000", "123456789012345678901234567890e1000000000"} {
		obj, err := objects.Decode(pod("web", cpu), kind)
		if p, ok := obj.(*corev1.Pod); err != nil || !ok || p.Spec.Overhead.Cpu().IsZero() {
			t.Errorf("%s: got %v, %v, want a pod", cpu, obj, err)
		}
		if obj, err := objects.Decode(pod(other, cpu), kind); !errors.Is(err, quantities.ErrFar) {
			t.Errorf("%s in text that is not plain: got %v, %v, want %v", cpu, obj, err, quantities.ErrFar)
		}
	}
	if obj, err := objects.Decode(pod("web", "0."+strings.Repeat("9", quantities.MaxLength)), kind); !errors.Is(err, quantities.ErrFar) {
		t.Errorf("A long fraction: got %v, %v, want %v", obj, err, quantities.ErrFar)
	}
	if _, err := objects.Decode(pod(other, "1e3"), kind); err != nil {
		t.Errorf("An ordinary quantity in text that is not plain: got %v", err)
	}
}
