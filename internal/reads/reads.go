// Package reads bounds the calls of API servers that requests need, and the memory of the objects that are read for them. Users
// choose how large stored objects are, how many of them a request needs, and how many requests read them at the same time.
package reads

import (
	"context"
	"errors"
)

// ErrTooLarge is returned for a list that needs more memory than one request may have. A shorter list may fit.
var ErrTooLarge = errors.New("what the API server answers needs more memory than one request may have")

// ErrHeld is returned if other requests hold the memory for what is read.
var ErrHeld = errors.New("too many bytes of requests are held")

// ErrBusy is returned if too many requests of the same tenant wait for calls of the API server, or if the request may not wait any
// longer.
var ErrBusy = errors.New("too many requests need the API server")

// Account holds memory until a decision ends, and lets calls wait for those of other requests. Its methods may be called by several goroutines.
type Account interface {
	// Hold holds n bytes more, or what is left of the memory that one decision may have. It waits a moment for memory that
	// others hold, and returns ErrHeld if they keep it, or if ctx ends.
	Hold(ctx context.Context, n int64) error
	// Need is Hold for what is made of the objects of the request. One request at a time gets it also if others hold the memory.
	Need(ctx context.Context, n int64) error
	// Add is Hold for an answer that must be read, because the request changed something. It does not wait.
	Add(n int64)
	// Turn waits a moment until no other answer is read for which memory is held part by part, and returns ErrHeld if it
	// does not come. Without it, each of several answers would hold what the others wait for. The answer has 5 s to arrive,
	// unless end is nil.
	Turn(ctx context.Context) (end func(), err error)
	// Call waits until a read or an access review may be sent, and returns an error if it may not. end is called when the
	// answer has been read. A call that may lead to another admission request needs no Call, or else that request could wait
	// for its own cause.
	Call(ctx context.Context) (end func(), err error)
	// Queued notes that the request waits for others, or for webhooks, in a way that the account does not know.
	Queued()
	// Fits reports whether one decision may have n bytes more.
	Fits(n int64) bool
	// Open returns another account with the same limits, which holds memory until end is called.
	Open() (account Account, end func())
}

type key struct{}

// NewContext returns a context whose reads hold memory in an account.
func NewContext(ctx context.Context, a Account) context.Context {
	return context.WithValue(ctx, key{}, a)
}

func accountOf(ctx context.Context) Account {
	a, _ := ctx.Value(key{}).(Account)
	return a
}

// Scope returns a context whose reads hold memory until end is called. It is for reads that outlive their request, and for
// those whose objects are garbage long before.
func Scope(ctx context.Context) (scoped context.Context, end func()) {
	a := accountOf(ctx)
	if a == nil {
		return ctx, func() {}
	}
	a, end = a.Open()
	return NewContext(ctx, a), end
}

// Without returns a context whose reads hold no memory, except within a Scope, and wait for no other calls. It is for work that
// several requests share, none of which should wait on behalf of the others, and that reads objects of administrators.
func Without(ctx context.Context) context.Context {
	a := accountOf(ctx)
	if a == nil {
		return ctx
	}
	return NewContext(ctx, Detached(a.Open))
}

// Detached is an account that holds nothing. It opens accounts that hold memory. The calls of both wait for no others.
type Detached func() (account Account, end func())

// Hold implements Account.
func (Detached) Hold(context.Context, int64) error { return nil }

// Need implements Account.
func (Detached) Need(context.Context, int64) error { return nil }

// Add implements Account.
func (Detached) Add(int64) {}

// Turn implements Account.
func (Detached) Turn(context.Context) (end func(), err error) { return func() {}, nil }

// Queued implements Account.
func (Detached) Queued() {}

// Fits implements Account.
func (Detached) Fits(int64) bool { return true }

// Call implements Account.
func (Detached) Call(context.Context) (end func(), err error) { return func() {}, nil }

// Open implements Account.
func (d Detached) Open() (account Account, end func()) {
	a, end := d()
	return shared{a}, end
}

// shared is an account whose calls wait for no others.
type shared struct{ Account }

func (shared) Call(context.Context) (end func(), err error) { return func() {}, nil }

func (s shared) Open() (account Account, end func()) { return Detached(s.Account.Open).Open() }

// Call is Account.Call for the account of ctx. A GET needs no Call: Transport waits for it.
func Call(ctx context.Context) (end func(), err error) {
	if a := accountOf(ctx); a != nil {
		return a.Call(ctx)
	}
	return func() {}, nil
}

// Queued is Account.Queued for the account of ctx. If the request then cannot be decided, it is denied, whoever sends it, because
// users choose how many requests there are, and make the control plane send some.
func Queued(ctx context.Context) {
	if a := accountOf(ctx); a != nil {
		a.Queued()
	}
}

// WithQueued returns a context for work that several requests share. Queued calls f, which notes it for each of them, but not
// within a Scope.
func WithQueued(ctx context.Context, f func()) context.Context {
	a := accountOf(ctx)
	if a == nil {
		return ctx
	}
	return NewContext(ctx, noting{a, f})
}

// noting is an account for several requests.
type noting struct {
	Account

	queued func()
}

func (n noting) Queued() { n.queued() }

// Need is Account.Need for the account of ctx. If other requests keep the memory, the request is denied, whoever sends it. It is
// never too large to be decided, because the objects of the request bound it.
func Need(ctx context.Context, n int64) error {
	a := accountOf(ctx)
	if a == nil {
		return nil
	}
	err := a.Need(ctx, n)
	if err != nil {
		a.Queued()
	}
	return err
}

// Hold holds n bytes in the account of ctx, or returns ErrTooLarge if that is more than one decision may have.
func Hold(ctx context.Context, n int64) error {
	a := accountOf(ctx)
	switch {
	case a == nil:
		return nil
	case !a.Fits(n):
		return ErrTooLarge
	}
	return a.Hold(ctx, n)
}
