package admit_test

import (
	"errors"
	"strings"
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	schedulingv1listers "k8s.io/client-go/listers/scheduling/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/pkg/admit"
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
		{name: "large", value: 3, gets: 1},
		{name: "deleted", gets: 1},
		{name: "gone", gets: 1},
		{name: "", gets: 0},
		{name: "not/a-name", gets: 0},
		{name: strings.Repeat("a", 254), gets: 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			tooLarge := func(name string) *schedulingv1.PriorityClass {
				return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{admit.TooLarge: ""}}}
			}
			for _, obj := range []*schedulingv1.PriorityClass{named("cached", 1), tooLarge("large"), tooLarge("deleted")} {
				if err := indexer.Add(obj); err != nil {
					t.Fatalf("Filling the cache: %v", err)
				}
			}
			client := fake.NewClientset(named("new", 2), named("large", 3))
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

// TestLookupFailuresAreNoDenials returns the unchanged error of Lookup, as most plugins do.
func TestLookupFailuresAreNoDenials(t *testing.T) {
	class := schema.GroupResource{Group: "scheduling.k8s.io", Resource: "priorityclasses"}
	for name, fails := range map[string]error{
		"401": apierrors.NewUnauthorized("who are you"),
		"403": apierrors.NewForbidden(class, "x", errors.New("no rights")),
		"429": apierrors.NewTooManyRequestsError("later"),
		"500": apierrors.NewInternalError(errors.New("etcd is away")),
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("get", "priorityclasses", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, fails })
			empty := schedulingv1listers.NewPriorityClassLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))
			_, err := admit.Lookup(t.Context(), empty, client.SchedulingV1().PriorityClasses(), "x")
			if !errors.Is(err, fails) || !strings.HasPrefix(err.Error(), `looking up PriorityClass "x": `) {
				t.Errorf("Got %v, want %v with the object that was looked up", err, fails)
			}
			if admit.IsDenial(err) {
				t.Errorf("Got a denial: %v", err)
			}
		})
	}
}
