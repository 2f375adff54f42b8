package router

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// patience is how long a request waits for bytes that other requests hold. If they
// are not available then, the request is denied or fails with 429, and the client
// repeats it.
const patience = 500 * time.Millisecond

// budget bounds the bytes that requests hold, in total and for each owner.
type budget struct {
	// size is 0 for no bound.
	size int64

	mu    sync.Mutex
	used  int64
	owned map[string]int64
	// growing are the owners with a request that holds bytes and waits for more.
	growing map[string]bool
	// exceeding is the request that has more bytes than there are, or nil. These bytes are not counted in used, so that they are
	// missing for no other request.
	exceeding any
	// freed is closed when bytes are given back.
	freed chan struct{}
}

func newBudget(size int64) *budget {
	return &budget{size: size, owned: map[string]int64{}, growing: map[string]bool{}, freed: make(chan struct{})}
}

// take takes n bytes for an owner, which may hold at most ceiling bytes. If the
// bytes are not available, take waits a moment for other requests to give some back.
// Small claims may overtake large claims, so that one large request does not delay
// all others. It sets delayed before it waits.
func (b *budget) take(ctx context.Context, delayed *atomic.Bool, owner string, ceiling, n int64) bool {
	return await(ctx, delayed, func() (bool, <-chan struct{}) { return b.try(owner, ceiling, n) })
}

// grow is take for a request that holds bytes of the budget. Only one such request of
// an owner waits. If several did, each would hold what the others wait for.
func (b *budget) grow(ctx context.Context, delayed *atomic.Bool, owner string, ceiling, n int64) bool {
	if fits, _ := b.try(owner, ceiling, n); fits {
		return true
	}
	delayed.Store(true)
	if !b.setGrowing(owner) {
		return false
	}
	defer b.unsetGrowing(owner)
	return b.take(ctx, delayed, owner, ceiling, n)
}

// exceed is take for a request, by, that holds bytes of the budget and needs n more before it can end. If such requests waited for
// bytes, each could hold what the others wait for. So one of them at a time has its bytes beside the budget if they are not
// available, until settle is called for it. The others wait a moment for either.
func (b *budget) exceed(ctx context.Context, delayed *atomic.Bool, owner string, ceiling, n int64, by any) (ok, beside bool) {
	ok = await(ctx, delayed, func() (bool, <-chan struct{}) {
		fits, freed := b.try(owner, ceiling, n)
		if !fits {
			beside = b.setExceeding(by)
		}
		return fits || beside, freed
	})
	return ok, beside
}

// setExceeding returns false if another request exceeds the budget.
func (b *budget) setExceeding(by any) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.exceeding != nil && b.exceeding != by {
		return false
	}
	b.exceeding = by
	return true
}

// settle ends what exceed began.
func (b *budget) settle(by any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.exceeding == by {
		b.exceeding = nil
		b.free()
	}
}

// free lets those that wait try again. b.mu is locked.
func (b *budget) free() {
	close(b.freed)
	b.freed = make(chan struct{})
}

// await calls try until it succeeds, for a moment: again whenever bytes are given back. It sets delayed before it waits.
func await(ctx context.Context, delayed *atomic.Bool, try func() (bool, <-chan struct{})) bool {
	ok, freed := try()
	if ok {
		return true
	}
	delayed.Store(true)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case <-freed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
		if ok, freed = try(); ok {
			return true
		}
	}
}

// setGrowing returns false if another request of the owner is growing.
func (b *budget) setGrowing(owner string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.growing[owner] {
		return false
	}
	b.growing[owner] = true
	return true
}

func (b *budget) unsetGrowing(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.growing, owner)
}

// try takes n bytes if they are available. Otherwise it returns a channel that is
// closed when a further try may succeed.
func (b *budget) try(owner string, ceiling, n int64) (fits bool, freed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size > 0 && (b.used+n > b.size || b.owned[owner]+n > ceiling) {
		return false, b.freed
	}
	b.used += n
	b.owned[owner] += n
	return true, nil
}

// takeOfPlenty takes n bytes for an owner if all owners hold less than a quarter of the budget then.
func (b *budget) takeOfPlenty(owner string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size > 0 && b.used+n >= b.size/4 {
		return false
	}
	b.used += n
	b.owned[owner] += n
	return true
}

// add takes n bytes for an owner, also if they are not available. Others then wait until so many are given back.
func (b *budget) add(owner string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += n
	b.owned[owner] += n
}

// give returns bytes that take took.
func (b *budget) give(owner string, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.owned[owner] -= n; b.owned[owner] == 0 {
		delete(b.owned, owner)
	}
	b.free()
}
