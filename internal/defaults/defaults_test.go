package defaults_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/postern-dev/postern/internal/defaults"
)

// TestSet has what is no object of a version that Set knows, and parts of one. test/parity compares the defaults with those of
// kube-apiserver.
func TestSet(t *testing.T) {
	for name, tt := range map[string]struct {
		object, want any
		known        bool
	}{
		"nothing":         {nil, nil, false},
		"no pod":          {(*corev1.Pod)(nil), (*corev1.Pod)(nil), false},
		"not a pointer":   {corev1.Secret{}, corev1.Secret{}, false},
		"a beta version":  {&appsv1beta1.Deployment{}, &appsv1beta1.Deployment{}, false},
		"an untyped one":  {&unstructured.Unstructured{}, &unstructured.Unstructured{}, false},
		"without default": {&corev1.ServiceAccount{}, &corev1.ServiceAccount{}, true},
		"a part":          {&corev1.ObjectFieldSelector{}, &corev1.ObjectFieldSelector{APIVersion: "v1"}, true},
	} {
		known := defaults.Set(tt.object)
		if diff := cmp.Diff(tt.want, tt.object); known != tt.known || diff != "" {
			t.Errorf("%s: Got %t and a difference (- want, + got):\n%s", name, known, diff)
		}
	}
}

// TestLabelsAreCopied changes the labels of a Job that it got from its template.
func TestLabelsAreCopied(t *testing.T) {
	job := &batchv1.Job{}
	job.Spec.Template.Labels = map[string]string{"app": "a"}
	defaults.Set(job)
	job.Labels["app"] = "b"
	if got := job.Spec.Template.Labels["app"]; got != "a" {
		t.Errorf("Got the label %s in the template", got)
	}
}
