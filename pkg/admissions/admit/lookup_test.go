package admit_test

import (
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	schedulingv1listers "k8s.io/client-go/listers/scheduling/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

func TestLookup(t *testing.T) {
	named := func(name string, value int32) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
	}
	for _, c := range []struct {
		name  string
		value int32
		gets  int
	}{
		{name: "cached", value: 1, gets: 0},
		{name: "new", value: 2, gets: 1},
		{name: "gone", gets: 1},
		{name: "", gets: 0},
		{name: "not/a-name", gets: 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			if err := indexer.Add(named("cached", 1)); err != nil {
				t.Fatalf("Filling the cache: %v", err)
			}
			client := fake.NewClientset(named("new", 2))
			got, err := admit.Lookup(t.Context(), schedulingv1listers.NewPriorityClassLister(indexer), client.SchedulingV1().PriorityClasses(), c.name)
			switch {
			case c.value == 0 && !apierrors.IsNotFound(err):
				t.Errorf("Got %v and error %v, want NotFound", got, err)
			case c.value != 0 && (err != nil || got.Value != c.value):
				t.Errorf("Got %v and error %v, want the class with the value %d", got, err, c.value)
			}
			if got := len(client.Actions()); got != c.gets {
				t.Errorf("Got %d calls, want %d", got, c.gets)
			}
		})
	}
}
