package e2e

import (
	"net"
	"sync"
	"time"
)

// Fault disturbs the data of a Proxy once.
type Fault struct {
	// Answers selects the data of the backend. Otherwise the data of the client is disturbed.
	Answers bool
	// After is how many bytes pass before the fault, on the connection that carries the next data.
	After int
	// Stall is how long the connection holds all further data of that direction. 0 cuts the connection instead.
	Stall time.Duration
}

// faults are the fault of a proxy, and the bytes that it has passed in both directions.
type faults struct {
	mu sync.Mutex
	// next is nil if there is no fault ahead.
	next *Fault
	// on is the connection that the fault is for, once data has passed on it.
	on     net.Conn
	passed int
	total  map[bool]int
	gone   chan struct{}
}

// Disturb prepares a fault. The channel that it returns is closed when the fault is over.
func (p *Proxy) Disturb(f Fault) (gone <-chan struct{}) {
	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	p.faults.next, p.faults.on, p.faults.passed, p.faults.gone = &f, nil, 0, make(chan struct{})
	return p.faults.gone
}

// Passed returns how many bytes the proxy has passed on from clients, or from backends.
func (p *Proxy) Passed(answers bool) int {
	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	return p.faults.total[answers]
}

// meet counts n bytes on a connection. It returns how many of them pass before a fault, and the fault, if it is now.
func (f *faults) meet(conn net.Conn, answers bool, n int) (before int, now *Fault, gone chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.total == nil {
		f.total = map[bool]int{}
	}
	f.total[answers] += n
	if f.next == nil || f.next.Answers != answers || f.on != nil && f.on != conn {
		return n, nil, nil
	}
	f.on = conn
	if f.passed += n; f.passed <= f.next.After {
		return n, nil, nil
	}
	now, gone = f.next, f.gone
	f.next = nil
	return n - (f.passed - now.After), now, gone
}

// relay passes data until the sender closes its side of the connection, or a fault cuts it.
func (p *Proxy) relay(to, from net.Conn, answers bool) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		before, fault, gone := n, (*Fault)(nil), (chan struct{})(nil)
		if n > 0 {
			before, fault, gone = p.faults.meet(from, answers, n)
		}
		if _, err := to.Write(buf[:before]); err != nil {
			return err
		}
		if fault != nil {
			if fault.Stall == 0 {
				close(gone)
				return net.ErrClosed
			}
			time.Sleep(fault.Stall)
			_, late := to.Write(buf[before:n])
			close(gone)
			if late != nil {
				return late
			}
		}
		if err != nil {
			return err
		}
	}
}
