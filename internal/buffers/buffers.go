// Package buffers uses the memory of texts again. The text of a review is a fifth to a third of the memory that its
// decision allocates.
package buffers

import "sync"

// keptBytes is the capacity up to which memory is used again. No limit counts memory that is unused, and the garbage
// collector frees it.
const keptBytes = 64 << 10

// Pool has buffers for texts of one kind. The zero value is ready for use.
type Pool struct {
	unused sync.Pool // of *[]byte
}

// Take returns an empty buffer with room for n bytes.
func (p *Pool) Take(n int) *[]byte {
	b, ok := p.unused.Get().(*[]byte)
	if !ok {
		b = new([]byte)
	}
	if cap(*b) < n {
		*b = make([]byte, 0, n)
	}
	*b = (*b)[:0]
	return b
}

// Give takes a buffer back. Nothing may use its memory afterwards.
func (p *Pool) Give(b *[]byte) {
	if cap(*b) <= keptBytes {
		p.unused.Put(b)
	}
}
