// Package reuse uses memory again that one package allocates for each request, and that nothing outside of that package
// may have. With the race detector, memory is overwritten as soon as it is unused, so that tests find what still has it.
package reuse

import "sync"

// keptBytes is the capacity up to which a buffer is used again. No limit counts memory that is unused, and the garbage
// collector frees it.
const keptBytes = 64 << 10

// Buffers has buffers for texts of one kind. The zero value is ready for use.
type Buffers struct {
	unused sync.Pool // of *[]byte
}

// Take returns an empty buffer.
func (p *Buffers) Take() *[]byte {
	b, ok := p.unused.Get().(*[]byte)
	if !ok {
		b = new([]byte)
	}
	*b = (*b)[:0]
	return b
}

// Give takes a buffer back. Nothing may use its memory afterwards.
func (p *Buffers) Give(b *[]byte) {
	if cap(*b) <= keptBytes {
		Unused(b)
		p.unused.Put(b)
	}
}

// Unused is called before memory is kept for later use. With the race detector it overwrites what v points to.
func Unused(v any) {
	if overwrites {
		Overwrite(v)
	}
}
