package podusage_test

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/internal/kinds/podusage"
)

// lists returns pods that have one list of resources each, one for each place of a pod with such a list.
func lists(t reflect.Type, list corev1.ResourceList, depth int) []reflect.Value {
	var out []reflect.Value
	switch {
	case t == reflect.TypeFor[corev1.ResourceList]():
		return []reflect.Value{reflect.ValueOf(list)}
	case depth == 0:
	case t.Kind() == reflect.Pointer:
		for _, inner := range lists(t.Elem(), list, depth-1) {
			v := reflect.New(t.Elem())
			v.Elem().Set(inner)
			out = append(out, v)
		}
	case t.Kind() == reflect.Slice:
		for _, inner := range lists(t.Elem(), list, depth-1) {
			out = append(out, reflect.Append(reflect.MakeSlice(t, 0, 1), inner))
		}
	case t.Kind() == reflect.Struct:
		for field := range t.Fields() {
			for _, inner := range lists(field.Type, list, depth-1) {
				v := reflect.New(t).Elem()
				v.FieldByIndex(field.Index).Set(inner)
				out = append(out, v)
			}
		}
	}
	return out
}

// TestFarQuantities covers stored pods with quantities that take hours to add, at each place that has resources.
func TestFarQuantities(t *testing.T) {
	// It is what client-go decodes.
	far := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1e1000000000")}
	all := lists(reflect.TypeFor[corev1.Pod](), far, 7)
	if len(all) < 10 {
		t.Fatalf("Got %d places with resources, want more", len(all))
	}
	gates := featuregate.NewFeatureGate()
	if err := gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{"PodLevelResources": {Default: true}}); err != nil {
		t.Fatal(err)
	}
	small := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}
	small.Limits = small.Requests
	for _, v := range all {
		pod := v.Interface().(corev1.Pod) // lists was called for this type.
		// The other containers make it a sum.
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "a", Resources: small}, corev1.Container{Name: "b", Resources: small})
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "c", Resources: small})
		before := pod.DeepCopy()
		usage := make(chan corev1.ResourceList, 1)
		go func() { usage <- podusage.Of(&pod, gates, clock.RealClock{}) }()
		select {
		case got := <-usage:
			if cpu := got[corev1.ResourceRequestsCPU]; cpu.Sign() <= 0 || strings.Contains(cpu.String(), "e999") {
				t.Errorf("%v: got %s", before, cpu.String())
			}
		case <-time.After(time.Minute):
			t.Fatalf("%v: got nothing in a minute", before)
		}
		if !reflect.DeepEqual(&pod, before) {
			t.Errorf("%v was changed to %v", before, &pod)
		}
	}
	pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: far}}, {Resources: small}}}}
	cpu := podusage.Of(&pod, gates, clock.RealClock{})[corev1.ResourceRequestsCPU]
	if cpu.CmpInt64(math.MaxInt64) < 0 {
		t.Errorf("Got %s, want the largest quantity or more", cpu.String())
	}
}
