package router

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/internal/reads"
)

// account holds the memory of the objects that a decision reads from API servers. It counts against the class of the request.
type account struct {
	*share

	// taken, beside and needed are the part of this account. If ended is true, nothing is held any more.
	taken, beside, needed int64
	ended                 bool
}

// share is what the accounts of one request have together, so that none of them waits for memory that another one holds.
type share struct {
	router *Router
	class  string
	// ceiling is how much memory the requests of the class may hold, in bytes.
	ceiling int64
	tenant  tenant

	mu sync.Mutex
	// room is what the request itself leaves of the ceiling.
	room int64
	// needs is what all objects take. claimed is less if that is more than room.
	needs, claimed int64
	// exceeds is the part of claimed that is held beside the budget.
	exceeds int64
	// delayed is true if other requests were in the way, queued if a plugin said so, and refused if they kept memory that the
	// request needed.
	delayed, queued, refused atomic.Bool
	// waited is true if calls of other requests of the tenant were in the way. waitEnd, unless zero, is when the request stops
	// waiting for them.
	waited  atomic.Bool
	waitEnd time.Time
	// progress belongs to the calls of the router.
	progress progress
}

// newAccount returns an account beside the memory that a request holds.
func (r *Router) newAccount(of tenant, held int64) *account {
	class, ceiling := r.classOf(of.isSystem)
	return &account{share: &share{router: r, class: class, ceiling: ceiling, tenant: of, room: max(0, ceiling-held)}}
}

// Hold implements reads.Account. An object that needs more than the limit of its class takes the whole limit, as a request
// does, so that no user can store an object with which a request is never decided.
func (a *account) Hold(ctx context.Context, n int64) error {
	claim := a.claim(n)
	return a.settle(n, claim, claim == 0 || a.router.memory.take(ctx, &a.delayed, a.class, a.ceiling, claim), false)
}

// Need implements reads.Account.
func (a *account) Need(ctx context.Context, n int64) error {
	claim := a.claim(n)
	if claim == 0 {
		return a.settle(n, claim, true, false)
	}
	ok, beside := a.router.memory.exceed(ctx, &a.delayed, a.class, a.ceiling, claim, a.share)
	return a.settle(n, claim, ok, beside)
}

// Add implements reads.Account.
func (a *account) Add(n int64) {
	claim := a.claim(n)
	a.router.memory.add(a.class, claim)
	_ = a.settle(n, claim, true, false)
}

// claim notes that n more bytes are needed, and returns how many to take for them.
func (a *account) claim(n int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return 0
	}
	claim := n
	if a.router.memory.size > 0 {
		claim = min(n, max(0, a.room-a.claimed))
	}
	a.needed += n
	a.needs += n
	a.claimed += claim
	return claim
}

// settle notes what became of a claim: whether its bytes were taken, and whether beside the budget.
func (a *account) settle(n, claim int64, ok, beside bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ok && beside {
		a.beside += claim
		a.exceeds += claim
	} else if ok {
		a.taken += claim
	}
	if ok {
		a.router.metrics.holds(claim)
		if a.ended {
			a.giveAll()
		}
		return nil
	}
	a.claimed -= claim
	a.refused.Store(true)
	if !a.ended {
		a.needed -= n
		a.needs -= n
	}
	return reads.ErrHeld
}

// Turn implements reads.Account.
func (a *account) Turn(ctx context.Context) (end func(), err error) {
	if a.router.turns.take(ctx, &a.delayed, a.class, 1, 1) {
		return func() { a.router.turns.give(a.class, 1) }, nil
	}
	a.refused.Store(true)
	return nil, reads.ErrHeld
}

// Call implements reads.Account.
func (a *account) Call(ctx context.Context) (end func(), err error) {
	if err := a.router.calls.take(ctx, a.share); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { a.router.calls.give(a.tenant) }), nil
}

// Queued implements reads.Account.
func (a *account) Queued() { a.queued.Store(true) }

// Fits implements reads.Account. It compares with the whole limit, so that a request that takes all of it can read lists.
func (a *account) Fits(n int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.router.memory.size == 0 || a.needs+n <= a.ceiling
}

// Open implements reads.Account.
func (a *account) Open() (reads.Account, func()) {
	other := &account{share: a.share}
	return other, other.end
}

// end gives the memory back. It may be called more than once.
func (a *account) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.needs -= a.needed
	a.needed, a.ended = 0, true
	a.giveAll()
}

// giveAll gives back what is taken. a.mu is locked.
func (a *account) giveAll() {
	a.router.memory.give(a.class, a.taken)
	a.router.metrics.holds(-a.taken - a.beside)
	a.claimed -= a.taken + a.beside
	if a.beside > 0 {
		if a.exceeds -= a.beside; a.exceeds == 0 {
			a.router.memory.settle(a.share)
		}
	}
	a.taken, a.beside = 0, 0
}

// endRequest is end for the account of a request whose own memory is given back too.
func (a *account) endRequest() {
	a.end()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.room = a.ceiling
}

// Background returns a context for the work of services that belongs to no request. What it reads within a reads.Scope counts
// as memory of a request that is not of the system. Other reads do not count, because nothing tells when they end.
func (r *Router) Background(ctx context.Context) context.Context {
	return reads.NewContext(ctx, reads.Detached(func() (reads.Account, func()) {
		a := r.newAccount(tenant{}, 0)
		return a, a.end
	}))
}
