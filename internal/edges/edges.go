// Package edges changes objects in one field each, to values at the edge of the field's type: none, the smallest, the
// largest, the longest, the strangest that a client can send. Tests send the objects through a real API server. Most of them
// do not pass its validation, but mutating webhooks are called before that.
package edges

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// maxBytes is a little less than what etcd stores of an object in protobuf, which is 1.5 MiB.
	maxBytes = 1_400_000
	// many is the length of a long list of small items. A list of larger items is shorter, so that the object has maxBytes.
	many = 65_536
)

// Change is one change of an object. The zero Change changes nothing.
type Change struct {
	// Path is the path of the field in the JSON of the object, such as spec.containers[0].env[0].value.
	Path string
	// Value describes the new value, such as "63 characters".
	Value string

	set func(object reflect.Value)
}

func (c Change) String() string { return c.Path + ": " + c.Value }

// Make returns a copy of the object with the change. The object has the type of the example that the change was made for.
func (c Change) Make(object runtime.Object) runtime.Object {
	object = object.DeepCopyObject()
	if c.set != nil {
		c.set(reflect.ValueOf(object).Elem())
	}
	return object
}

// Of returns the changes of all fields of the example, except of kind and apiVersion. The order is always the same. Lists
// are changed as a whole and in each item of the example, and in a first item if the example has none; later items only in
// the fields that they set. What the example sets is what makes the changed objects pass validation.
func Of(example runtime.Object) []Change {
	return walked(example).changes
}

// Some returns n changes of the example, or all if there are fewer, in the order of chance.
func Some(example runtime.Object, chance *rand.Rand, n int) []Change {
	all := Of(example)
	some := make([]Change, 0, n)
	for _, i := range chance.Perm(len(all))[:min(n, len(all))] {
		some = append(some, all[i])
	}
	return some
}

// List is a list or a map of an object that can be made long.
type List struct {
	// Path is the path of the list in the JSON of the object, and Value describes its items.
	Path, Value string
	// Used is true if the list has items in the example.
	Used bool

	set func(object reflect.Value, n int)
}

func (l List) String() string { return l.Path + ": " + l.Value }

// Lists returns the lists and maps of all fields of the example, in the order of the fields.
func Lists(example runtime.Object) []List {
	return walked(example).lists
}

// Make returns a copy of the object in which the list has n different items. The object has the type of the example.
func (l List) Make(object runtime.Object, n int) runtime.Object {
	object = object.DeepCopyObject()
	l.set(reflect.ValueOf(object).Elem(), n)
	return object
}

// Fit returns the number of items with which the object has at most the given number of bytes in protobuf, or in JSON if
// its type has no protobuf. It is at most 65,536.
func (l List) Fit(object runtime.Object, bytes int) int {
	return l.fit(reflect.ValueOf(object.DeepCopyObject()).Elem(), bytes)
}

// fit changes the object.
func (l List) fit(object reflect.Value, bytes int) int {
	size := func(n int) int {
		l.set(object, n)
		return sizeOf(object)
	}
	const sample = 100
	empty := size(0)
	each := max(1, (size(sample)-empty)/sample)
	n := min(many, max(0, bytes-empty)/each)
	for n > 0 {
		got := size(n)
		if got <= bytes {
			break
		}
		n = min(n-1, n*bytes/got)
	}
	return n
}

func sizeOf(object reflect.Value) int {
	if sized, ok := reflect.TypeAssert[interface{ Size() int }](object.Addr()); ok {
		return sized.Size()
	}
	text, err := json.Marshal(object.Interface())
	if err != nil {
		return 0
	}
	return len(text)
}

// Text is a field with a text of any length.
type Text struct {
	// Path is the path of the field in the JSON of the object.
	Path string

	set func(object reflect.Value, text string)
}

// Texts returns the fields of the example that have a text, except for names and namespaces of objects.
func Texts(example runtime.Object) []Text {
	return walked(example).texts
}

// Make returns a copy of the object in which the text is n characters longer.
func (x Text) Make(object runtime.Object, n int) runtime.Object {
	object = object.DeepCopyObject()
	x.set(reflect.ValueOf(object).Elem(), strings.Repeat("a", n))
	return object
}

// place returns the settable value of a field in an object. It makes the pointers and the list items that lead there.
type place func(object reflect.Value) reflect.Value

type walk struct {
	changes []Change
	lists   []List
	texts   []Text
	later   bool           // the current field is in an item that is not the first
	types   []reflect.Type // the types that contain the current field
}

func walked(example runtime.Object) *walk {
	w := &walk{}
	w.value(reflect.ValueOf(example).Elem(), "", func(object reflect.Value) reflect.Value { return object })
	return w
}

func (w *walk) add(path, value string, set func(object reflect.Value)) {
	w.changes = append(w.changes, Change{Path: path, Value: value, set: set})
}

// long adds a list or map, and the change that makes it as long as etcd stores.
func (w *walk) long(path, value string, used bool, set func(object reflect.Value, n int)) {
	l := List{Path: path, Value: value, Used: used, set: set}
	w.lists = append(w.lists, l)
	w.add(path, value, func(object reflect.Value) { set(object, l.fit(object, maxBytes)) })
}

// value adds the changes of a field. v is the value of the field in the example.
func (w *walk) value(v reflect.Value, path string, at place) {
	t := v.Type()
	if edges, ok := edgesOf(t); ok {
		if t.Kind() == reflect.String && v.Len() > 0 && path != "metadata.name" && path != "metadata.namespace" {
			w.texts = append(w.texts, Text{path, func(object reflect.Value, text string) { at(object).SetString(v.String() + text) }})
		}
		for _, e := range edges {
			w.add(path, e.name, func(object reflect.Value) { at(object).Set(reflect.ValueOf(e.value).Convert(t)) })
		}
		return
	}
	if slices.Contains(w.types, t) {
		return
	}
	w.types = append(w.types, t)
	defer func() { w.types = w.types[:len(w.types)-1] }()
	switch t.Kind() {
	case reflect.Struct:
		w.fields(v, path, at)
	case reflect.Pointer:
		w.pointer(v, path, at)
	case reflect.Slice:
		w.list(v, path, at)
	case reflect.Map:
		w.entries(v, path, at)
	default: // an interface, which is the decoded form of what another field has as text
	}
}

func (w *walk) fields(v reflect.Value, path string, at place) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() || field.Type == reflect.TypeFor[metav1.TypeMeta]() {
			continue
		}
		inner := path
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			inner = strings.TrimPrefix(path+"."+name, ".")
		}
		w.value(v.Field(i), inner, func(object reflect.Value) reflect.Value { return at(object).Field(i) })
	}
}

func (w *walk) pointer(v reflect.Value, path string, at place) {
	if w.later && v.IsNil() {
		return
	}
	value := reflect.Zero(v.Type().Elem())
	if v.IsNil() {
		w.add(path, "empty", func(object reflect.Value) { at(object).Set(reflect.New(v.Type().Elem())) })
	} else {
		value = v.Elem()
		w.add(path, "none", func(object reflect.Value) { at(object).SetZero() })
	}
	w.value(value, path, func(object reflect.Value) reflect.Value {
		p := at(object)
		if p.IsNil() {
			p.Set(reflect.New(p.Type().Elem()))
		}
		return p.Elem()
	})
}

func (w *walk) list(v reflect.Value, path string, at place) {
	if w.later && v.Len() == 0 {
		return
	}
	items := v
	if v.Len() == 0 {
		items = reflect.MakeSlice(v.Type(), 1, 1)
	}
	w.add(path, "none", func(object reflect.Value) { at(object).SetZero() })
	w.add(path, "an empty item", func(object reflect.Value) {
		list := at(object)
		list.Set(reflect.Append(list, reflect.Zero(v.Type().Elem())))
	})
	w.add(path, "the same twice", func(object reflect.Value) {
		list := at(object)
		list.Set(reflect.AppendSlice(list, items))
	})
	fill := func(withKeys bool) func(object reflect.Value, n int) {
		return func(object reflect.Value, n int) {
			list := reflect.MakeSlice(v.Type(), n, n)
			for i := range n {
				list.Index(i).Set(items.Index(0))
				number(list.Index(i), i)
				if withKeys {
					numberKeys(list.Index(i), i)
				}
			}
			at(object).Set(list)
		}
	}
	w.long(path, "many items", v.Len() > 0, fill(false))
	first := reflect.New(v.Type().Elem()).Elem()
	first.Set(items.Index(0))
	if numberKeys(first, 0) {
		w.long(path, "many items with keys of their own", v.Len() > 0, fill(true))
	}
	defer func(later bool) { w.later = later }(w.later)
	for i := range items.Len() {
		w.later = w.later || i > 0
		w.value(items.Index(i), fmt.Sprintf("%s[%d]", path, i), func(object reflect.Value) reflect.Value {
			list := at(object)
			for list.Len() <= i { // the object may have fewer items than the example
				list.Set(reflect.Append(list, reflect.Zero(list.Type().Elem())))
			}
			return list.Index(i)
		})
	}
}

// entries adds the changes of a map. Its keys are strings.
func (w *walk) entries(v reflect.Value, path string, at place) {
	t := v.Type()
	key, value := reflect.ValueOf("a").Convert(t.Key()), reflect.New(t.Elem()).Elem()
	if keys := v.MapKeys(); len(keys) > 0 {
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		key = keys[0]
		value.Set(v.MapIndex(key))
	}
	set := func(object, key, value reflect.Value) {
		m := at(object)
		if m.IsNil() {
			m.Set(reflect.MakeMap(t))
		}
		m.SetMapIndex(key, value)
	}
	w.add(path, "none", func(object reflect.Value) { at(object).SetZero() })
	w.long(path, "many entries", v.Len() > 0, func(object reflect.Value, n int) {
		m := reflect.MakeMapWithSize(t, n)
		for i := range n {
			m.SetMapIndex(reflect.ValueOf(key.String()+"-"+strconv.Itoa(i)).Convert(t.Key()), value)
		}
		at(object).Set(m)
	})
	for _, e := range texts {
		w.add(path, "the key "+e.name, func(object reflect.Value) { set(object, reflect.ValueOf(e.value).Convert(t.Key()), value) })
	}
	edges, ok := edgesOf(t.Elem())
	if !ok { // such as a list
		w.add(path, "an empty value", func(object reflect.Value) { set(object, key, reflect.Zero(t.Elem())) })
	}
	for _, e := range edges {
		w.add(path, "the value "+e.name, func(object reflect.Value) { set(object, key, reflect.ValueOf(e.value).Convert(t.Elem())) })
	}
}

// number makes an item different from the others of its list: a string, or an object in the fields that identify it, or in its
// first field.
func number(item reflect.Value, n int) {
	if item.Kind() == reflect.String {
		item.SetString(item.String() + strconv.Itoa(n))
		return
	}
	if item.Kind() != reflect.Struct || item.NumField() == 0 {
		return
	}
	identified := false
	for _, name := range []string{"Name", "Key", "UID"} {
		if field := item.FieldByName(name); field.IsValid() {
			number(field, n)
			identified = true
		}
	}
	if !identified {
		number(item.Field(0), n)
	}
}

// numberKeys gives the maps of an item keys that the maps of other items do not have, and reports whether there are any. It
// leaves what pointers and lists lead to alone, because other items share it.
func numberKeys(item reflect.Value, n int) (found bool) {
	if item.Kind() == reflect.Map && item.Len() > 0 {
		m := reflect.MakeMap(item.Type())
		for _, key := range item.MapKeys() {
			m.SetMapIndex(reflect.ValueOf(key.String()+strconv.Itoa(n)).Convert(key.Type()), item.MapIndex(key))
		}
		item.Set(m)
		return true
	}
	if item.Kind() != reflect.Struct {
		return false
	}
	for i := range item.NumField() {
		if item.Type().Field(i).IsExported() && numberKeys(item.Field(i), n) {
			found = true
		}
	}
	return found
}

// edge is a value at the edge of a type.
type edge struct {
	name  string
	value any
}

// edgesOf returns the edges of a type, and false for types that have fields or items.
func edgesOf(t reflect.Type) ([]edge, bool) {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return quantities, true
	case reflect.TypeFor[metav1.Time]():
		return times(func(t time.Time) any { return metav1.NewTime(t) }), true
	case reflect.TypeFor[metav1.MicroTime]():
		return times(func(t time.Time) any { return metav1.NewMicroTime(t) }), true
	case reflect.TypeFor[intstr.IntOrString]():
		return intOrStrings(), true
	case reflect.TypeFor[runtime.RawExtension]():
		return raws(func(text string) any { return runtime.RawExtension{Raw: []byte(text)} }), true
	case reflect.TypeFor[metav1.FieldsV1]():
		return raws(func(text string) any { return *metav1.NewFieldsV1(text) }), true
	case reflect.TypeFor[[]byte]():
		return bytes, true
	}
	switch t.Kind() {
	case reflect.String:
		return texts, true
	case reflect.Bool:
		return []edge{{"false", false}, {"true", true}}, true
	case reflect.Int32:
		return integers(math.MinInt32, math.MaxInt32), true
	case reflect.Int64:
		return integers(math.MinInt64, math.MaxInt64), true
	case reflect.Float64:
		return []edge{{"0", 0.0}, {"-0", math.Copysign(0, -1)}, {"the smallest", math.SmallestNonzeroFloat64}, {"the largest", math.MaxFloat64}, {"no number", math.NaN()}, {"infinite", math.Inf(1)}}, true
	default:
		return nil, false
	}
}

// texts are strings that are hard to decode, to compare or to keep, and strings as long as names, labels and values may be.
var texts = []edge{
	{"no text", ""},
	{"a space", " "},
	{"an upper-case letter", "A"},
	{"a dash", "-"},
	{"a path", "../../a"},
	{"a star", "*"},
	{"a name of two parts", "a.example.com/b"},
	{"63 characters", strings.Repeat("a", 63)},
	{"64 characters", strings.Repeat("a", 64)},
	{"253 characters", strings.Repeat(strings.Repeat("a", 62)+".", 4) + "a"},
	{"254 characters", strings.Repeat("a", 254)},
	{"a quantity of 70 digits", strings.Repeat("9", 70)},
	{"the digits of the smallest integer", "-9223372036854775808"},
	{"a large exponent", "1e9999999999"},
	{"a time after the year 9999", "9999-12-31T23:59:59-01:00"},
	{"a time before the year 0", "0000-01-01T00:00:00+01:00"},
	{"JSON", `{"a":[-0.0,1e400,"\ud800"]}`},
	{"10,000 brackets", strings.Repeat("[", 10_000)},
	{"quotes", `"'\`},
	{"a null character", "\x00"},
	{"a line end", "a\nb\r\n"},
	{"invalid UTF-8", "\xff"},
	{"a line separator", "\u2028<>&"},
	{"an expansion", "$(A)${B}%s"},
	{"300,000 control characters", strings.Repeat("\x01", 300_000)},
	{"1,250,000 escapes", strings.Repeat("<", 1_250_000)},
}

var bytes = []edge{{"no bytes", []byte{}}, {"invalid UTF-8", []byte("\xff\x00")}, {"1,000,000 bytes", make([]byte, 1_000_000)}}

// quantities may be invalid: a client that sends protobuf chooses the text.
var quantities = func() (out []edge) {
	for _, text := range []string{
		"0", "-1", "1n", "0.0000000001", "-9223372036854775808", "9223372036854775807", "9223372036854775808", "9.5E", "8Ei", "1e18", "1e-9",
		strings.Repeat("9", 70), strings.Repeat("9", 2000), strings.Repeat("0", 2000) + "1Gi", "0." + strings.Repeat("0", 2000) + "1",
	} {
		name := text
		if len(text) > 20 {
			name = fmt.Sprintf("%.5s… of %d characters", text, len(text))
		}
		out = append(out, edge{name, resource.MustParse(text)})
	}
	return out
}()

func times(of func(time.Time) any) (out []edge) {
	for name, t := range map[string]time.Time{
		"none": {}, "1970": time.Unix(0, 0), "before the year 0": time.Unix(-62167219201, 0), "after the year 9999": time.Unix(253402300800, 0),
		"the latest": time.Unix(math.MaxInt64, 0), "the earliest": time.Unix(math.MinInt64, 0), "nanoseconds": time.Unix(1, 999_999_999),
	} {
		out = append(out, edge{name, of(t)})
	}
	slices.SortFunc(out, func(a, b edge) int { return strings.Compare(a.name, b.name) })
	return out
}

func intOrStrings() []edge {
	out := []edge{
		{"the smallest integer", intstr.FromInt32(math.MinInt32)},
		{"the largest integer", intstr.FromInt32(math.MaxInt32)},
		{"0", intstr.FromInt32(0)},
		{"101%", intstr.FromString("101%")},
		{"neither", intstr.IntOrString{Type: 7, IntVal: 1, StrVal: "a"}},
	}
	for _, e := range texts {
		out = append(out, edge{e.name, intstr.FromString(e.value.(string))})
	}
	return out
}

func raws(of func(text string) any) (out []edge) {
	for _, text := range []string{"", "null", "{", "[]", "{}", "\xff", `{"a":1,"a":-9223372036854775808,"f:a":{}}`, `{"a":1e400}`} {
		out = append(out, edge{fmt.Sprintf("the text %q", text), of(text)})
	}
	for _, levels := range []int{1_000, 9_990, 20_000} {
		out = append(out, edge{fmt.Sprintf("%d levels", levels), of(strings.Repeat(`{"f:a":`, levels) + "{}" + strings.Repeat("}", levels))})
	}
	return out
}

func integers(smallest, largest int64) []edge {
	return []edge{{"-1", int64(-1)}, {"0", int64(0)}, {"1", int64(1)}, {"65,536", int64(65_536)}, {"the smallest", smallest}, {"the largest", largest}}
}
