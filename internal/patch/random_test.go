package patch

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	"github.com/postern-dev/postern/internal/plainjson"
	"github.com/postern-dev/postern/internal/seed"
)

// randomRounds is the number of rounds over all kinds in each random test. randomBudget is the
// time after which a test stops earlier.
const (
	randomRounds = 3
	randomBudget = 2 * time.Second
)

// forRandomObjects calls f with a random object of every kind, as a document that an API
// server could send. It stops at the first failure and logs the seed.
func forRandomObjects(t *testing.T, f func(c *chance, gvk schema.GroupVersionKind, raw string)) {
	t.Helper()
	began, seed := time.Now(), seed.First(t)
	for round := range randomRounds {
		for _, gvk := range kinds(t) {
			if round > 0 && time.Since(began) > randomBudget {
				return
			}
			seed++
			c := newChance(seed)
			data, err := json.Marshal(c.fill(t, gvk))
			if err != nil {
				t.Fatalf("Seed %d: encoding a %s: %v", seed, gvk, err)
			}
			raw := string(c.thin(t, gvk, data))
			func() {
				defer func() {
					if t.Failed() {
						t.Logf("The seed is %d, with a %s: %s", seed, gvk, raw)
					}
				}()
				f(c, gvk, raw)
			}()
			if t.Failed() {
				return
			}
		}
	}
}

func TestDiffOfRandomChanges(t *testing.T) {
	changed := 0
	forRandomObjects(t, func(c *chance, gvk schema.GroupVersionKind, raw string) {
		patch, _ := patched(t, gvk, raw, func(obj runtime.Object) { c.scramble(obj) })
		if patch != nil {
			changed++
		}
	})
	if changed < 100 {
		t.Errorf("Only %d objects were changed", changed)
	}
}

// TestEveryKindIsPlain compares the decoder of requests with that of the API server for every kind.
func TestEveryKindIsPlain(t *testing.T) {
	forRandomObjects(t, func(_ *chance, gvk schema.GroupVersionKind, raw string) {
		got, err := scheme.Scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		want, err := scheme.Scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		if !plainjson.Unmarshal([]byte(raw), got) {
			t.Fatal("The text is not plain")
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(raw), want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("Got %+v, want %+v", got, want)
		}
	})
}

func TestDiffOfRandomToRandom(t *testing.T) {
	forRandomObjects(t, func(c *chance, gvk schema.GroupVersionKind, raw string) {
		other := c.fill(t, gvk)
		patched(t, gvk, raw, func(obj runtime.Object) { reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(other).Elem()) })
	})
}

func TestDiffOfEqualObjectsIsNil(t *testing.T) {
	forRandomObjects(t, func(_ *chance, gvk schema.GroupVersionKind, raw string) {
		if patch, _ := patched(t, gvk, raw, func(runtime.Object) {}); patch != nil {
			t.Errorf("Got %s, want nil", patch)
		}
	})
}

// TestDiffOfRandomUnstructured changes objects of an unknown kind.
func TestDiffOfRandomUnstructured(t *testing.T) {
	unknown := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	forRandomObjects(t, func(c *chance, gvk schema.GroupVersionKind, raw string) {
		patched(t, unknown, raw, func(obj runtime.Object) {
			for range 1 + c.Intn(3) {
				places := objectsIn(obj.(*unstructured.Unstructured).Object)
				place := places[c.Intn(len(places))]
				other := mustDecode(t, unknown, raw).(*unstructured.Unstructured)
				donors := objectsIn(other.Object)
				donor := donors[c.Intn(len(donors))]
				for _, key := range append(sorted(place), sorted(donor)...) {
					switch c.Intn(4) {
					case 0:
						delete(place, key)
					case 1:
						place[key] = runtime.DeepCopyJSONValue(donor[key])
					}
				}
			}
		})
	})
}
