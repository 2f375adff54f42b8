package v1alpha1_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	settingsv1alpha1 "github.com/postern-dev/postern/pkg/apis/settings/v1alpha1"
)

// full returns a preset with a pointer, a map or a slice in every list.
func full() settingsv1alpha1.PodPreset {
	return settingsv1alpha1.PodPreset{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"}},
		Spec: settingsv1alpha1.PodPresetSpec{
			Selector:     metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Env:          []corev1.EnvVar{{Name: "a", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "p"}}}},
			EnvFrom:      []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}},
			Volumes:      []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
			VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPropagation: new(corev1.MountPropagationNone)}},
		},
	}
}

func TestDeepCopySharesNothing(t *testing.T) {
	list := &settingsv1alpha1.PodPresetList{Items: []settingsv1alpha1.PodPreset{full()}}
	got, ok := list.DeepCopyObject().(*settingsv1alpha1.PodPresetList)
	if !ok || !apiequality.Semantic.DeepEqual(list, got) {
		t.Fatalf("Got %+v", list.DeepCopyObject())
	}
	p := &got.Items[0]
	p.Labels["a"], p.Spec.Selector.MatchLabels["a"] = "x", "x"
	p.Spec.Env[0].ValueFrom.FieldRef.FieldPath, p.Spec.EnvFrom[0].SecretRef.Name = "x", "x"
	p.Spec.Volumes[0].HostPath.Path, *p.Spec.VolumeMounts[0].MountPropagation = "x", "x"
	if want := full(); !apiequality.Semantic.DeepEqual(list.Items[0], want) {
		t.Errorf("The original was changed: %+v", list.Items[0])
	}
}

func TestDeepCopyOfNothing(t *testing.T) {
	if got := (*settingsv1alpha1.PodPreset)(nil).DeepCopy(); got != nil {
		t.Errorf("Got %v for nil", got)
	}
	if got := (*settingsv1alpha1.PodPresetList)(nil).DeepCopy(); got != nil {
		t.Errorf("Got %v for a list that is nil", got)
	}
	if got := (&settingsv1alpha1.PodPreset{}).DeepCopy(); !reflect.DeepEqual(got, &settingsv1alpha1.PodPreset{}) {
		t.Errorf("Got %+v for an empty preset", got)
	}
}

func TestAddToScheme(t *testing.T) {
	s := runtime.NewScheme()
	if err := settingsv1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	got, err := s.New(settingsv1alpha1.GroupVersion().WithKind(settingsv1alpha1.Kind))
	if _, ok := got.(*settingsv1alpha1.PodPreset); err != nil || !ok {
		t.Errorf("Got %T, %v", got, err)
	}
}
