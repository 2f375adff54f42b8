package parity_test

import (
	"math/rand"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	corev1defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"sigs.k8s.io/randfill"

	"github.com/postern-dev/postern/internal/kinds/podspec"
)

// TestPodDefaults compares our defaults of volumes and variables with those of kube-apiserver, for random pods.
func TestPodDefaults(t *testing.T) {
	codecs := serializer.NewCodecFactory(legacyscheme.Scheme)
	// Fields may be absent, so that they get a default.
	random := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, quantities), rand.NewSource(1), codecs).NilChance(0.3).NumElements(0, 3)
	sources := reflect.TypeFor[corev1.VolumeSource]().NumField()
	for i := range 100 * sources {
		var v corev1.Volume
		var e corev1.EnvVar
		random.Fill(&v)
		random.Fill(&e)
		// The plugins ignore the default of this field.
		if v.Image != nil {
			v.Image.PullPolicy = corev1.PullAlways
		}
		// A volume has one source, or none at the end.
		source := reflect.ValueOf(v.VolumeSource).Field(i % sources)
		v.VolumeSource = corev1.VolumeSource{}
		if i < 99*sources {
			reflect.ValueOf(&v.VolumeSource).Elem().Field(i % sources).Set(source)
		}
		want := corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{*v.DeepCopy()}, Containers: []corev1.Container{{Env: []corev1.EnvVar{*e.DeepCopy()}}}}}
		corev1defaults.SetObjectDefaults_Pod(&want)
		podspec.SetVolumeDefaults(&v)
		podspec.SetEnvDefaults(&e)
		if diff := cmp.Diff(want.Spec.Volumes[0], v); diff != "" {
			t.Fatalf("The volumes differ (- kube-apiserver, + ours):\n%s", diff)
		}
		if diff := cmp.Diff(want.Spec.Containers[0].Env[0], e); diff != "" {
			t.Fatalf("The variables differ (- kube-apiserver, + ours):\n%s", diff)
		}
	}
}

// quantities returns how random quantities are made.
func quantities(serializer.CodecFactory) []any {
	return []any{func(q *resource.Quantity, c randfill.Continue) {
		*q = *resource.NewScaledQuantity(c.Int63n(1_000_000), resource.Micro)
	}}
}
