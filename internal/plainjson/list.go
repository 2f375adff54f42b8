package plainjson

import (
	"reflect"
	"unsafe"

	"github.com/postern-dev/postern/internal/jsontype"
)

// list decodes an array into a slice, whose capacity is at most one and a half times its length.
func (d *decoder) list(t *jsontype.Type, to unsafe.Pointer) bool {
	if !d.enter() {
		return false
	}
	items := t.Short.Take(t)
	n := 0
	for ; n < jsontype.Few && d.more(']', n == 0); n++ {
		if !d.value(t.Elem, unsafe.Add(items, uintptr(n)*t.Elem.Size)) {
			return false
		}
	}
	out := (*jsontype.Slice)(to)
	out.First, out.Len, out.Cap = t.Short.Move(items, n), n, n
	for n >= jsontype.Few && d.more(']', false) {
		if out.Len == out.Cap {
			grow(t.At(to))
		}
		out.Len++
		if !d.value(t.Elem, unsafe.Add(out.First, uintptr(out.Len-1)*t.Elem.Size)) {
			return false
		}
	}
	return d.leave(']')
}

// grow gives a slice half as much capacity again.
func grow(list reflect.Value) {
	n := list.Len()
	grown := reflect.MakeSlice(list.Type(), n, n+n/2)
	reflect.Copy(grown, list)
	list.Set(grown)
}

// bitset is a set of the indexes of fields, or of depths.
type bitset [jsontype.MaxFields / 64]uint64

// add adds an index, and returns true if it is in the set already.
func (s *bitset) add(i int) bool {
	bit := uint64(1) << (i % 64)
	had := s[i/64]&bit != 0
	s[i/64] |= bit
	return had
}

func (s *bitset) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// put adds an index, or removes it.
func (s *bitset) put(i int, in bool) {
	s[i/64] &^= 1 << (i % 64)
	if in {
		s[i/64] |= 1 << (i % 64)
	}
}
