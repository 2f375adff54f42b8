package census

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/internal/fleetquota/workload"
	"github.com/postern-dev/postern/internal/heap"
	"github.com/postern-dev/postern/internal/kinds/podspec"
)

// TestAmounts compares few resources with many, among which they are.
func TestAmounts(t *testing.T) {
	few := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{"cpu", "requests.cpu", "count/pods", "", "a\x00b", "a b/ü", corev1.ResourceName(strings.Repeat("a", 300))} {
		few[name] = resource.MustParse("1")
	}
	for name, text := range map[corev1.ResourceName]string{
		"memory": "1536Mi", "fraction": "1n", "enormous": "9223372036854775807", "exponent": "12e6",
	} {
		few[name] = resource.MustParse(text)
	}
	for name, times := range map[corev1.ResourceName]int64{"1Ti": 1 << 30, "1Ei": 1 << 20, "1E": 1_000_000_000, "64Gi": 1_000_000_000, "3m": 1<<31 - 1} {
		sum := resource.MustParse(string(name))
		sum.Mul(times)
		few[name] = sum
	}
	spare := corev1.ResourceList{"memory": resource.MustParse("3Ki"), "only spare": resource.MustParse("5")}
	many := few.DeepCopy()
	for i := range 20 {
		many[corev1.ResourceName(fmt.Sprintf("example.com/a%d", i))] = resource.MustParse(fmt.Sprint(i))
	}
	small, large := newAmounts(few, spare), newAmounts(many, spare)
	if small.packed != nil || large.usage != nil {
		t.Fatal("Few resources are packed, or many are not")
	}
	var names []corev1.ResourceName
	for name := range few {
		names = append(names, name)
	}
	for _, name := range append(names, "only spare", "unknown", "requests", "cp") {
		usage, rest, known := small.of(name)
		gotUsage, gotRest, gotKnown := large.of(name)
		if usage.Cmp(gotUsage) != 0 || rest.Cmp(gotRest) != 0 || known != gotKnown || usage.Format != gotUsage.Format {
			t.Errorf("%.20q: got %v, %v and %t, want %v, %v and %t", name, &gotUsage, &gotRest, gotKnown, &usage, &rest, known)
		}
	}
	names = append(names, "unknown", "only spare")
	if want, got := small.masked(names), large.masked(names); len(got) != len(few) || len(want) != len(few) {
		t.Errorf("Got %d resources, want %d", len(got), len(few))
	}
}

// TestMemoryOfAnEntry measures cached objects. Users choose how many resources and owners they have.
func TestMemoryOfAnEntry(t *testing.T) {
	gates := featuregate.NewFeatureGate()
	if err := gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{podspec.PodLevelResources: podspec.QOSFeatures()[podspec.PodLevelResources]}); err != nil {
		t.Fatal(err)
	}
	c := &Census{kinds: workload.New(workload.Settings{}, gates, clock.RealClock{})}
	kind := c.kinds.Find(schema.GroupResource{Group: "apps", Resource: "deployments"})
	deployment := func(names, owners int) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		list := corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}
		for i := range names {
			list[corev1.ResourceName(fmt.Sprintf("a.co/%d", i))] = resource.MustParse("1")
		}
		for i := range owners {
			is := i == owners/2
			d.OwnerReferences = append(d.OwnerReferences, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: fmt.Sprint("a", i), UID: "u", Controller: &is})
		}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}
		return d
	}
	for name, test := range map[string]struct {
		object *appsv1.Deployment
		// most is how many bytes the entry may take.
		copies, most int64
	}{
		"36,000 resources": {deployment(36_000, 0), 5, 1_350_000},
		"30 resources":     {deployment(28, 0), 2_000, 3_000},
		"an ordinary one":  {deployment(0, 0), 2_000, 3_000},
		"10,000 owners":    {deployment(0, 10_000), 20, 10_000},
	} {
		t.Run(name, func(t *testing.T) {
			kept := make([]any, test.copies)
			test.object.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}
			text, err := json.Marshal(test.object)
			if err != nil {
				t.Fatal(err)
			}
			took := heap.Kept(func() any {
				for i := range kept {
					u := &unstructured.Unstructured{}
					if err := u.UnmarshalJSON(text); err != nil {
						t.Fatal(err)
					}
					if kept[i], err = c.transform(kind)(u); err != nil {
						t.Fatal(err)
					}
				}
				return kept
			}) / test.copies
			t.Logf("An entry takes %d bytes, the object in etcd %d", took, test.object.Size())
			if took > test.most {
				t.Errorf("An entry takes %d bytes, want at most %d", took, test.most)
			}
			if e, ok := kept[0].(*entry); !ok || len(e.masked([]corev1.ResourceName{"requests.cpu"})) != 1 {
				t.Errorf("Got %v", kept[0])
			}
		})
	}
}
