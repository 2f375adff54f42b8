package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/pkg/admit"
)

// Plugins read the labels, the allocatable resources and the declared features of nodes.
func TestTrimmedNodesKeepWhatPluginsRead(t *testing.T) {
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{corev1.LabelTopologyZone: "z"}, Annotations: map[string]string{"a": "b"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}, DeclaredFeatures: []string{"F"},
		},
	}
	node := want.DeepCopy()
	node.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	node.Status.Images = []corev1.ContainerImage{{Names: []string{"i"}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
	node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "v"}}
	got, err := trimmed(node)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("The cached node differs (-want +got):\n%s", diff)
	}
}

func TestTrimmedObjectsKeepWhatPluginsRead(t *testing.T) {
	account := &corev1.ServiceAccount{
		ObjectMeta:       metav1.ObjectMeta{Name: "a", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "s"}},
	}
	want := account.DeepCopy()
	want.ManagedFields = nil
	got, err := trimmed(account)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("The cached service account differs (-want +got):\n%s", diff)
	}
	if got, err := trimmed("no object"); got != "no object" || err != nil {
		t.Errorf("Got %v %v, want what is no object unchanged", got, err)
	}
}

func TestALargeServiceAccountHasOnlyItsName(t *testing.T) {
	for secrets, whole := range map[int]bool{3: true, 60: true, 80: false, 90_000: false} {
		account := &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "u", ResourceVersion: "7", Labels: map[string]string{"a": "b"}},
			Secrets:    make([]corev1.ObjectReference, secrets),
		}
		want := account.DeepCopy()
		if !whole {
			want = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "a", UID: "u", ResourceVersion: "7", Annotations: map[string]string{admit.TooLarge: ""},
			}}
		}
		got, err := trimmed(account)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d secrets: the cached service account differs (-want +got):\n%.1000s", secrets, diff)
		}
	}
}
