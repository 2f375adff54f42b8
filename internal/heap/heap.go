// Package heap measures memory in tests.
package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// Kept returns the number of bytes that the result of make references. Nothing else in the process may allocate meanwhile.
func Kept(make func() any) int64 {
	before := live()
	v := make()
	after := live()
	runtime.KeepAlive(v)
	return after - before
}

func live() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // Pools forget what they have after the second one.
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // no heap is as large as that
}

// tries is the number of measurements of Peak.
const tries = 5

// Peak returns how many bytes f needs at the same time, at most: what is in use after one of the garbage collections while f
// runs, less what was in use before. What f makes during a collection counts as in use, so that a result is too large if the
// process gets little time. Peak therefore measures again while the result is above the limit, which is asked for after each run.
// Nothing else in the process may allocate meanwhile.
func Peak(f func(), limit func() int64) (bytes int64) {
	for range tries {
		if bytes = peak(f); bytes <= limit() {
			break
		}
	}
	return bytes
}

func peak(f func()) int64 {
	before := live()
	defer debug.SetGCPercent(debug.SetGCPercent(5)) // many collections
	var most atomic.Int64
	var done atomic.Bool
	watch(func() bool {
		most.Store(max(most.Load(), marked()))
		return !done.Load()
	})
	f()
	done.Store(true)
	return max(0, most.Load()-before)
}

// watch calls f after each garbage collection, until f returns false.
func watch(f func() bool) {
	runtime.SetFinalizer(&struct{ _ [64]byte }{}, func(any) {
		if f() {
			watch(f)
		}
	})
}

// marked returns what the last garbage collection found in use, in bytes.
func marked() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64()) //nolint:gosec // no heap is as large as that
}
