package reuse

import (
	"bytes"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Overwrite writes other values into all memory that v points to, directly or through the pointers, slices and maps in
// it. It does not write into strings, whose memory is never used again.
func Overwrite(v any) { overwrite(reflect.ValueOf(v)) }

func overwrite(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			overwrite(v.Elem())
		}
	case reflect.Struct:
		overwriteStruct(v)
	case reflect.Slice:
		all := v.Slice(0, v.Cap())
		if v.Type().Elem().Kind() == reflect.Uint8 {
			copy(all.Bytes(), bytes.Repeat([]byte{'#'}, v.Cap()))
			return
		}
		for i := range v.Cap() {
			overwrite(all.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			overwrite(value)
			v.SetMapIndex(key, value)
		}
	default:
		overwriteScalar(v)
	}
}

// overwriteStruct overwrites the fields of a struct. Fields that are not exported are those of quantities and times.
func overwriteStruct(v reflect.Value) {
	if !v.CanSet() {
		return
	}
	if q, ok := reflect.TypeAssert[*resource.Quantity](v.Addr()); ok {
		q.AsDec().SetUnscaled(-1)
		return
	}
	if t, ok := reflect.TypeAssert[*time.Time](v.Addr()); ok {
		*t = time.Unix(1, 1)
		return
	}
	for _, field := range v.Fields() {
		overwrite(field)
	}
}

func overwriteScalar(v reflect.Value) {
	switch {
	case !v.CanSet():
	case v.Kind() == reflect.String:
		v.SetString("overwritten")
	case v.CanInt():
		v.SetInt(-7)
	case v.CanUint():
		v.SetUint('#')
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.CanFloat():
		v.SetFloat(-7)
	}
}
