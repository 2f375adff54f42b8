package podsecurity

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/admission"
	psadmission "k8s.io/pod-security-admission/admission/api"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/postern-dev/postern/internal/seed"
)

type oneNamespace struct{}

func (oneNamespace) GetNamespace(context.Context, string) (*corev1.Namespace, error) {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{api.EnforceLevelLabel: string(api.LevelBaseline)}}}, nil
}

// TestLeaveOutUnchanged compares the library's answers with and without the ephemeral containers that are left out, for random
// updates of pods.
func TestLeaveOutUnchanged(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	recorder, err := newRecorder(nil)
	if err != nil {
		t.Fatal(err)
	}
	library := &admission.Admission{
		Configuration: &psadmission.PodSecurityConfiguration{Defaults: psadmission.PodSecurityDefaults{
			Enforce: "privileged", EnforceVersion: "latest", Audit: "privileged", AuditVersion: "latest", Warn: "privileged", WarnVersion: "latest",
		}},
		Evaluator: evaluator, Metrics: recorder, PodSpecExtractor: admission.DefaultPodSpecExtractor{}, NamespaceGetter: oneNamespace{}, PodLister: newPodLister(nil),
	}
	if err := library.CompleteConfiguration(); err != nil {
		t.Fatal(err)
	}
	chance := seed.Chance(t)
	// container returns a container with one of few names and images, which sometimes violates the level.
	container := func(i int) corev1.Container {
		c := corev1.Container{Name: fmt.Sprint(i - chance.IntN(2)), Image: fmt.Sprint(chance.IntN(8) / 7)}
		c.SecurityContext = &corev1.SecurityContext{Privileged: new(chance.IntN(6) == 0)}
		return c
	}
	pod := func() *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{container(0)}}}
		if chance.IntN(4) == 0 {
			p.Spec.InitContainers = []corev1.Container{container(0)}
		}
		for i := range chance.IntN(4) {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(container(i))})
		}
		return p
	}
	seen := map[string]int{}
	for range 5_000 {
		whole := &api.AttributesRecord{Operation: admissionv1.Update, Namespace: "a", Resource: corev1.SchemeGroupVersion.WithResource("pods"), Object: pod(), OldObject: pod()}
		less := *whole
		leaveOutUnchanged(&less)
		now, before := &less.Object.(*corev1.Pod).Spec, &less.OldObject.(*corev1.Pod).Spec
		if len(now.EphemeralContainers) > 0 && len(before.EphemeralContainers) > 0 && images(now) == images(before) {
			t.Fatalf("The library searches the ephemeral containers of %s for those of %s", whole.OldObject, whole.Object)
		}
		want, got := library.Validate(t.Context(), whole), library.Validate(t.Context(), &less)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s\nto %s\n%s", whole.OldObject, whole.Object, diff)
		}
		seen[fmt.Sprintf("allowed %t, whole %t, old whole %t", want.Allowed, less.Object == whole.Object, less.OldObject == whole.OldObject)]++
	}
	for _, outcome := range []string{
		"allowed true, whole false, old whole true", "allowed true, whole true, old whole false",
		"allowed false, whole true, old whole false", "allowed false, whole true, old whole true",
	} {
		if seen[outcome] == 0 {
			t.Errorf("No update has the outcome %s: %v", outcome, seen)
		}
	}
}

// images returns the images that the library compares before it searches ephemeral containers.
func images(spec *corev1.PodSpec) (out string) {
	for _, c := range slices.Concat(spec.Containers, []corev1.Container{{}}, spec.InitContainers) {
		out += c.Image + "\n"
	}
	return out
}
