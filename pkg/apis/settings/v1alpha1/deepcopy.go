package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopy returns a copy that shares nothing with p.
func (p *PodPreset) DeepCopy() *PodPreset {
	if p == nil {
		return nil
	}
	return &PodPreset{TypeMeta: p.TypeMeta, ObjectMeta: *p.ObjectMeta.DeepCopy(), Spec: p.Spec.deepCopy()}
}

// DeepCopyObject implements runtime.Object.
func (p *PodPreset) DeepCopyObject() runtime.Object { return p.DeepCopy() }

// DeepCopy returns a copy that shares nothing with l.
func (l *PodPresetList) DeepCopy() *PodPresetList {
	if l == nil {
		return nil
	}
	return &PodPresetList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy(), Items: copies(l.Items, (*PodPreset).deepCopyInto)}
}

// DeepCopyObject implements runtime.Object.
func (l *PodPresetList) DeepCopyObject() runtime.Object { return l.DeepCopy() }

func (p *PodPreset) deepCopyInto(out *PodPreset) { *out = *p.DeepCopy() }

func (s *PodPresetSpec) deepCopy() PodPresetSpec {
	return PodPresetSpec{
		Selector:     *s.Selector.DeepCopy(),
		Env:          copies(s.Env, (*corev1.EnvVar).DeepCopyInto),
		EnvFrom:      copies(s.EnvFrom, (*corev1.EnvFromSource).DeepCopyInto),
		Volumes:      copies(s.Volumes, (*corev1.Volume).DeepCopyInto),
		VolumeMounts: copies(s.VolumeMounts, (*corev1.VolumeMount).DeepCopyInto),
	}
}

func copies[T any](items []T, into func(in, out *T)) []T {
	if items == nil {
		return nil
	}
	out := make([]T, len(items))
	for i := range items {
		into(&items[i], &out[i])
	}
	return out
}
