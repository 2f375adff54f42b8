package jsontype_test

import (
	"reflect"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"

	"github.com/postern-dev/postern/internal/jsontype"
)

// TestEveryKindIsExact covers all types of k8s.io/api. A type that is not exact is slow to decode and to encode, and lacks
// the fields of embedded pointers.
func TestEveryKindIsExact(t *testing.T) {
	seen := map[*jsontype.Type]bool{}
	var check func(*jsontype.Type)
	check = func(typ *jsontype.Type) {
		if typ == nil || seen[typ] {
			return
		}
		seen[typ] = true
		if typ.Form == jsontype.Struct && !typ.IsExact {
			t.Errorf("%v is not exact", typ.Go)
		}
		check(typ.Elem)
		for _, f := range typ.Fields {
			if f.Name != "" && typ.Named(f.Name).Type != f.Type {
				t.Errorf("%v: got another field for %s", typ.Go, f.Name)
			}
			if sf := typ.Go.FieldByIndex(f.Index); sf.Type != f.Type.Go {
				t.Errorf("%v: got the type %v for %s, want %v", typ.Go, f.Type.Go, f.Name, sf.Type)
			}
			check(f.Type)
		}
	}
	for _, typ := range scheme.Scheme.AllKnownTypes() {
		check(jsontype.Of(typ))
	}
	if len(seen) < 500 {
		t.Errorf("Got %d types, want far more", len(seen))
	}
}

// TestForms has types that only encoding/json knows, in whole or in part.
func TestForms(t *testing.T) {
	type plain struct{ A string }
	type hidden struct{ B string }
	for _, c := range []struct {
		v       any
		form    jsontype.Form
		isExact bool
	}{
		{plain{}, jsontype.Struct, true},
		{struct{ plain }{}, jsontype.Struct, false},
		{struct{ *hidden }{}, jsontype.Struct, false},
		{struct {
			A string `json:"a,string"`
		}{}, jsontype.Struct, false},
		{reflect.Zero(reflect.StructOf([]reflect.StructField{
			{Name: "A", Type: reflect.TypeFor[string](), Tag: `json:"a"`},
			{Name: "B", Type: reflect.TypeFor[string](), Tag: `json:"a"`},
		})).Interface(), jsontype.Struct, false},
		{struct {
			A string `json:"<"`
		}{}, jsontype.Struct, false},
		{map[int]string{}, jsontype.Other, false},
		{1.5, jsontype.Other, false},
		{[]byte{}, jsontype.Bytes, false},
	} {
		if got := jsontype.Of(reflect.TypeOf(c.v)); got.Form != c.form || got.IsExact != c.isExact {
			t.Errorf("%T: got %d, %t, want %d, %t", c.v, got.Form, got.IsExact, c.form, c.isExact)
		}
	}
}
