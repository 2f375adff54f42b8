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

// message is an object with a form in protobuf.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal(text []byte) error
}

// TestEveryKindFromProtobufIsPlain has what clients can send as protobuf but not as JSON. The text of an API server must be
// decoded without sigs.k8s.io/json, which does not read all of it, to the object that has the same text.
func TestEveryKindFromProtobufIsPlain(t *testing.T) {
	seed, sent := seed.First(t), 0
	for _, gvk := range kinds(t) {
		for range randomRounds {
			seed++
			obj := newWild(seed).fill(t, gvk)
			m, ok := obj.(message)
			if !ok {
				continue
			}
			sent++
			protobuf, err := m.Marshal()
			if err != nil {
				t.Fatalf("Seed %d: encoding a %s: %v", seed, gvk, err)
			}
			received, decoded := reflect.New(reflect.TypeOf(obj).Elem()).Interface(), reflect.New(reflect.TypeOf(obj).Elem()).Interface()
			if err := received.(message).Unmarshal(protobuf); err != nil {
				t.Fatalf("Seed %d: decoding a %s: %v", seed, gvk, err)
			}
			text, err := json.Marshal(received)
			if err != nil {
				t.Fatalf("Seed %d: encoding a %s: %v", seed, gvk, err)
			}
			if !plainjson.Unmarshal(text, decoded) {
				t.Fatalf("Seed %d: the text of a %s is not plain: %s", seed, gvk, text)
			}
			again, err := json.Marshal(decoded)
			if err != nil {
				t.Fatalf("Seed %d: encoding a %s again: %v", seed, gvk, err)
			}
			// Only in this form are the characters equal that stand for invalid UTF-8.
			if !reflect.DeepEqual(untyped(t, again), untyped(t, text)) {
				t.Fatalf("Seed %d: a %s has the text\n%s\nand is decoded to\n%s", seed, gvk, text, again)
			}
		}
	}
	if sent < 500 {
		t.Errorf("Only %d objects were sent", sent)
	}
}

func untyped(t *testing.T, text []byte) (out any) {
	t.Helper()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
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
