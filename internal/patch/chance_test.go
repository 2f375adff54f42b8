package patch

import (
	"math"
	"math/rand"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/randfill"

	"github.com/postern-dev/postern/internal/jsontype"
)

// chance generates random objects and random changes. The same seed always generates the same
// objects and changes.
type chance struct {
	*rand.Rand
	filler *randfill.Filler
	// bold makes edit also change items of lists without a key, and makes every new string
	// unique.
	bold  bool
	fresh int
}

func newChance(seed int64) *chance {
	source := rand.NewSource(seed)
	r := rand.New(source)
	c := &chance{Rand: r}
	c.filler = randfill.NewWithSeed(seed).RandSource(source).NilChance(0.4).NumElements(0, 3).Funcs(
		func(t *metav1.TypeMeta, _ randfill.Continue) { *t = metav1.TypeMeta{} },
		func(s *string, _ randfill.Continue) { *s = c.text() },
		func(t *metav1.Time, _ randfill.Continue) { t.Time = time.Unix(r.Int63n(1<<32), 0) },
		func(t *metav1.MicroTime, _ randfill.Continue) { t.Time = time.UnixMicro(r.Int63n(1 << 50)) },
		func(q *resource.Quantity, _ randfill.Continue) {
			*q = *resource.NewMilliQuantity(r.Int63n(1<<40), resource.DecimalSI)
		},
		func(i *intstr.IntOrString, _ randfill.Continue) {
			if *i = intstr.FromInt32(r.Int31n(9)); r.Intn(2) == 0 {
				*i = intstr.FromString(c.text())
			}
		},
		func(f *metav1.FieldsV1, _ randfill.Continue) {
			f.SetRawString(`{"f:` + strconv.Itoa(r.Intn(99)) + `":{}}`)
		},
		func(e *runtime.RawExtension, _ randfill.Continue) {
			*e = runtime.RawExtension{Raw: []byte(`{"kind":"K","n":[` + strconv.Itoa(r.Intn(99)) + `]}`)}
		},
		func(o *runtime.Object, _ randfill.Continue) { *o = nil },
	)
	return c
}

// newWild is newChance with values at the edges of what protobuf has.
func newWild(seed int64) *chance {
	c := newChance(seed)
	ints := []int64{math.MinInt64, math.MaxInt64, math.MinInt32, math.MaxInt32, -1, 0, 1}
	seconds := func() int64 {
		return []int64{math.MinInt64, math.MaxInt64, -62135596801, -62167219201, -1e15, 1e15, 253402300800, 0, c.Int63(), -c.Int63()}[c.Intn(10)]
	}
	numbers := []string{strings.Repeat("9", 70), "-" + strings.Repeat("123456789", 100), strings.Repeat("0", 90) + "1", "1e1000", "+1.5Gi", "0.000000001", "9E", "-0", "1e-9", "123456789012345678"}
	c.filler.Funcs(
		func(n *int64, _ randfill.Continue) { *n = ints[c.Intn(len(ints))] },
		func(n *int32, _ randfill.Continue) { *n = int32(ints[c.Intn(len(ints))]) },
		func(s *string, _ randfill.Continue) {
			if *s = c.text(); c.Intn(3) == 0 {
				*s = []string{"\xff\xfe", "\xed\xa0\x80", "\x00\x1f\x7f", "\u2028\u2029", "😀", "<>&", strings.Repeat("7", 70), `\ud83d`, "\ufffd\ufeff"}[c.Intn(9)]
			}
		},
		func(t *metav1.Time, _ randfill.Continue) { t.Time = time.Unix(seconds(), 0) },
		func(t *metav1.MicroTime, _ randfill.Continue) { t.Time = time.Unix(seconds(), c.Int63n(1e9)) },
		func(d *metav1.Duration, _ randfill.Continue) { d.Duration = time.Duration(ints[c.Intn(len(ints))]) },
		func(q *resource.Quantity, _ randfill.Continue) {
			*q = resource.MustParse(numbers[c.Intn(len(numbers))])
		},
		func(e *runtime.RawExtension, _ randfill.Continue) {
			*e = runtime.RawExtension{Raw: []byte(strings.Repeat("[", 200) + `"` + strings.Repeat("7", 70) + `"` + strings.Repeat("]", 200))}
		},
	)
	return c
}

// text returns a random string. Strings repeat often, so that items of lists are equal and
// keys are shared. Some are hard to encode.
func (c *chance) text() string {
	if c.bold {
		c.fresh++
		return "fresh" + strconv.Itoa(c.fresh)
	}
	hard := []string{"", "a", "b", "c", "a/b", "~", "~1", "a~0/", "-", "0", "1", "ü☃", "\"\\", "<&>", "\n\t\u2028", "null"}
	if c.Intn(3) == 0 {
		return hard[c.Intn(len(hard))]
	}
	return "s" + strconv.Itoa(c.Intn(1000))
}

// fill returns a random object of a kind.
func (c *chance) fill(tb testing.TB, gvk schema.GroupVersionKind) runtime.Object {
	tb.Helper()
	obj, err := scheme.Scheme.New(gvk)
	if err != nil {
		tb.Fatal(err)
	}
	c.filler.Fill(obj)
	return obj
}

// scramble changes an object in a few random places.
func (c *chance) scramble(obj any) {
	for range 1 + c.Intn(4) {
		var places []reflect.Value
		collect(reflect.ValueOf(obj).Elem(), &places)
		c.change(places[c.Intn(len(places))])
	}
}

// collect appends every value inside v that can be set.
func collect(v reflect.Value, out *[]reflect.Value) {
	if v.Type() == reflect.TypeFor[metav1.TypeMeta]() {
		return
	}
	if v.CanSet() {
		*out = append(*out, v)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			collect(v.Elem(), out)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			if !jsontype.Of(v.Type()).IsLeaf() {
				collect(field, out)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if !jsontype.Of(v.Type()).IsLeaf() {
				collect(v.Index(i), out)
			}
		}
	default:
	}
}

func (c *chance) change(v reflect.Value) {
	switch {
	case v.Kind() == reflect.Slice && !jsontype.Of(v.Type()).IsLeaf() && v.Len() > 0:
		c.changeList(v)
	case v.Kind() == reflect.Map && v.Len() > 0 && c.Intn(2) == 0:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		key, value := keys[c.Intn(len(keys))], reflect.New(v.Type().Elem())
		if c.Intn(2) == 0 {
			c.filler.Fill(value.Interface())
			v.SetMapIndex(key, value.Elem())
		} else {
			v.SetMapIndex(key, reflect.Value{})
		}
	case v.Kind() == reflect.Pointer && c.Intn(3) == 0:
		v.Set(reflect.New(v.Type().Elem())) // A pointer to the zero value.
	case c.Intn(6) == 0:
		v.SetZero()
	default:
		c.filler.Fill(v.Addr().Interface())
	}
}

func (c *chance) changeList(v reflect.Value) {
	items := reflect.MakeSlice(v.Type(), 0, v.Len()+1)
	at := c.Intn(v.Len())
	extra := reflect.New(v.Type().Elem()).Elem()
	c.filler.Fill(extra.Addr().Interface())
	switch c.Intn(5) {
	case 0: // Shuffle.
		for _, i := range c.Perm(v.Len()) {
			items = reflect.Append(items, v.Index(i))
		}
	case 1: // Delete.
		items = reflect.AppendSlice(reflect.AppendSlice(items, v.Slice(0, at)), v.Slice(at+1, v.Len()))
	case 2: // Insert, or append.
		at = c.Intn(v.Len() + 1)
		items = reflect.AppendSlice(reflect.Append(reflect.AppendSlice(items, v.Slice(0, at)), extra), v.Slice(at, v.Len()))
	case 3: // Duplicate.
		items = reflect.AppendSlice(reflect.Append(items, v.Index(at)), v)
	default: // Replace.
		items = reflect.AppendSlice(items, v)
		items.Index(at).Set(extra)
	}
	v.Set(items)
}

// kinds returns one kind for each type of k8s.io/api, except for lists.
func kinds(tb testing.TB) []schema.GroupVersionKind {
	tb.Helper()
	byType := map[reflect.Type]schema.GroupVersionKind{}
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		_, isList := typ.FieldByName("ListMeta")
		if old, ok := byType[typ]; strings.HasPrefix(typ.PkgPath(), "k8s.io/api/") && !isList && (!ok || gvk.String() < old.String()) {
			byType[typ] = gvk
		}
	}
	var out []schema.GroupVersionKind
	for _, gvk := range byType {
		out = append(out, gvk)
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	if len(out) < 100 {
		tb.Fatalf("Found %d kinds, want far more", len(out))
	}
	return out
}

// decode returns an object as package admit decodes it.
func decode(raw []byte, gvk schema.GroupVersionKind) (runtime.Object, error) {
	obj, err := scheme.Scheme.New(gvk)
	if err != nil {
		u := &unstructured.Unstructured{}
		return u, kjson.UnmarshalCaseSensitivePreserveInts(raw, &u.Object)
	}
	return obj, kjson.UnmarshalCaseSensitivePreserveInts(raw, obj)
}
