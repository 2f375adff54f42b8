// Package buffers reuses the memory of texts. The text of a review is a fifth to a third of the memory that its
// decision allocates.
package buffers

import "sync"

// keptBytes is the largest capacity of a buffer that is reused, in bytes. The memory of unused buffers is in no limit
// of the process, and the garbage collector frees it.
const keptBytes = 64 << 10

// Pool holds unused buffers for texts of one kind. The zero value is ready for use.
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

// Give returns a buffer to the pool. The caller must not use its memory afterwards.
func (p *Pool) Give(b *[]byte) {
	if cap(*b) <= keptBytes {
		p.unused.Put(b)
	}
}
