package plainjson

import (
	"reflect"
	"unsafe"

	"github.com/postern-dev/postern/internal/jsontype"
)

// list decodes an array into a slice, whose capacity is at most one and a half times its length.
func (d *decoder) list(t *jsontype.Type, to unsafe.Pointer) bool {
	if !d.Enter() {
		return false
	}
	items := t.Short.Take(t)
	n := 0
	for ; n < jsontype.Few && d.More(']', n == 0); n++ {
		if !d.value(t.Elem, unsafe.Add(items, uintptr(n)*t.Elem.Size)) {
			return false
		}
	}
	out := (*jsontype.Slice)(to)
	out.First, out.Len, out.Cap = t.Short.Move(items, n), n, n
	for n >= jsontype.Few && d.More(']', false) {
		if out.Len == out.Cap {
			grow(t.At(to))
		}
		out.Len++
		if !d.value(t.Elem, unsafe.Add(out.First, uintptr(out.Len-1)*t.Elem.Size)) {
			return false
		}
	}
	return d.Leave(']')
}

// grow gives a slice half as much capacity again.
func grow(list reflect.Value) {
	n := list.Len()
	grown := reflect.MakeSlice(list.Type(), n, n+n/2)
	reflect.Copy(grown, list)
	list.Set(grown)
}
