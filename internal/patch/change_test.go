package patch

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/randfill"
)

// A difference that changeOf misses is a change of a plugin that gets lost.
func TestChangeOfFindsEveryDifference(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.5).NumElements(0, 3).MaxDepth(12)
	changes := 0
	for range 300 {
		before := &corev1.Pod{}
		fill.Fill(before)
		after := before.DeepCopy()
		if c := changeOf(reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem()); c != nil {
			t.Fatalf("Got the change %+v of a copy", c)
		}
		var other corev1.Pod
		fill.Fill(&other)
		part := reflect.ValueOf(after).Elem().FieldByName("Spec")
		for i := range part.NumField() {
			original := reflect.New(part.Field(i).Type()).Elem()
			original.Set(part.Field(i))
			part.Field(i).Set(reflect.ValueOf(other.Spec).Field(i))
			same := apiequality.Semantic.DeepEqual(before, after)
			if c := changeOf(reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem()); c == nil && !same {
				t.Fatalf("Got no change of the field %s", part.Type().Field(i).Name)
			}
			if !same {
				changes++
			}
			part.Field(i).Set(original)
		}
	}
	if changes == 0 {
		t.Error("Got no field that was changed")
	}
}
