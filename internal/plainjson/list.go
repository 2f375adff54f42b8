package plainjson

import (
	"reflect"
	"sync"
	"unsafe"
)

// slice is the memory of a slice.
type slice struct {
	items    unsafe.Pointer
	len, cap int
}

// few is the length up to which a list gets no more memory than its items need. Their number is not known in advance, so
// they are decoded into memory that is used again.
const few = 8

// list decodes an array into a slice, whose capacity is at most one and a half times its length.
func (d *decoder) list(p *plan, to unsafe.Pointer) bool {
	if !d.enter() {
		return false
	}
	items := p.few.take(p.elem.typ)
	n := 0
	for ; n < few && d.more(']', n == 0); n++ {
		if !d.value(p.elem, unsafe.Add(items, uintptr(n)*p.elem.size)) {
			return false
		}
	}
	out := (*slice)(to)
	out.items, out.len, out.cap = p.few.move(items, n), n, n
	for n >= few && d.more(']', false) {
		if out.len == out.cap {
			p.grow(to)
		}
		out.len++
		if !d.value(p.elem, unsafe.Add(out.items, uintptr(out.len-1)*p.elem.size)) {
			return false
		}
	}
	return d.leave(']')
}

// grow gives a slice half as much capacity again.
func (p *plan) grow(to unsafe.Pointer) {
	have := reflect.NewAt(p.typ, to).Elem()
	n := have.Len()
	grown := reflect.MakeSlice(p.typ, n, n+n/2)
	reflect.Copy(grown, have)
	have.Set(grown)
}

// fewItems has memory for the items of short lists.
type fewItems struct {
	// arrays are the types of arrays by their length. They are made for the first list, since most objects have few of
	// the lists that their type has.
	arrays [few + 1]reflect.Type
	made   sync.Once
	unused sync.Pool // of pointers to arrays of the largest type, all zero
}

// take returns memory for few items of a type, which is zero.
func (f *fewItems) take(item reflect.Type) unsafe.Pointer {
	if p, ok := f.unused.Get().(unsafe.Pointer); ok {
		return p
	}
	f.made.Do(func() {
		for n := range f.arrays {
			f.arrays[n] = reflect.ArrayOf(n, item)
		}
	})
	return reflect.New(f.arrays[few]).UnsafePointer()
}

// move moves the first n items to new memory, and keeps the memory that take returned for later use.
func (f *fewItems) move(items unsafe.Pointer, n int) unsafe.Pointer {
	if n == 0 {
		f.unused.Put(items)
		return unsafe.Pointer(&nothing)
	}
	to := reflect.New(f.arrays[n])
	from := reflect.NewAt(f.arrays[n], items).Elem()
	to.Elem().Set(from)
	from.SetZero()
	f.unused.Put(items)
	return to.UnsafePointer()
}

// nothing is what slices without items point to, since they are not nil.
var nothing struct{}
