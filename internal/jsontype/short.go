package jsontype

import (
	"reflect"
	"sync"
	"unsafe"
)

// Few is the length up to which Short has memory for a list.
const Few = 8

// Short has memory for the items of short lists of one type, whose number is not known in advance. A list so gets no more
// memory than its items need.
type Short struct {
	// arrays are the types of arrays by their length. They are made for the first list, since most objects have few of
	// the lists that their type has.
	arrays [Few + 1]reflect.Type
	made   sync.Once
	unused sync.Pool // of pointers to arrays of the largest type, all zero
}

// Take returns memory for Few items of a list of type t, which is zero.
func (s *Short) Take(t *Type) unsafe.Pointer {
	if p, ok := s.unused.Get().(unsafe.Pointer); ok {
		return p
	}
	s.made.Do(func() {
		for n := range s.arrays {
			s.arrays[n] = reflect.ArrayOf(n, t.Elem.Go)
		}
	})
	return reflect.New(s.arrays[Few]).UnsafePointer()
}

// Move moves the first n items to new memory, and keeps the memory that Take returned for later use.
func (s *Short) Move(items unsafe.Pointer, n int) unsafe.Pointer {
	if n == 0 {
		s.unused.Put(items)
		return unsafe.Pointer(&nothing)
	}
	to := reflect.New(s.arrays[n])
	from := reflect.NewAt(s.arrays[n], items).Elem()
	to.Elem().Set(from)
	from.SetZero()
	s.unused.Put(items)
	return to.UnsafePointer()
}

// nothing is what slices without items point to, since they are not nil.
var nothing struct{}
