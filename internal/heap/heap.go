// Package heap measures memory in tests.
package heap

import "runtime"

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
