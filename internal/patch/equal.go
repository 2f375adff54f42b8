package patch

import (
	"reflect"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// equal reports whether two values have the same meaning. Either both values are
// addressable, or neither is.
func equal(b, a reflect.Value) bool {
	return apiequality.Semantic.DeepEqual(boxed(b), boxed(a))
}

// mayBeEqual reports whether two values that differ may still be equal: nil and an empty list are, and so are quantities
// that are written in two ways.
func mayBeEqual(b, a reflect.Value) bool {
	switch b.Kind() {
	case reflect.Bool, reflect.String, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return false
	case reflect.Slice, reflect.Map, reflect.Pointer:
		return isZeroOrEmpty(b) == isZeroOrEmpty(a)
	default:
		return true
	}
}

// identical reports whether two values are deeply the same. Most fields of an
// object are, and identical costs a quarter of equal. Values that are not
// identical may still be equal.
func identical(b, a reflect.Value) bool {
	switch b.Kind() {
	case reflect.String:
		return b.String() == a.String()
	case reflect.Pointer, reflect.Interface:
		if b.IsNil() && a.IsNil() {
			return true
		}
	case reflect.Slice, reflect.Map:
		if b.Len() == 0 && a.Len() == 0 {
			return true
		}
	default:
	}
	return reflect.DeepEqual(boxed(b), boxed(a))
}

// boxed returns v, or a pointer to it where that saves a copy.
func boxed(v reflect.Value) any {
	if v.CanAddr() {
		v = v.Addr()
	}
	return v.Interface()
}
