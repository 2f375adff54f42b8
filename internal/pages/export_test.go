package pages

// LargeIsTaken reports whether a page or a large event is in memory.
func LargeIsTaken() bool {
	if large.TryAcquire(1) {
		large.Release(1)
		return false
	}
	return true
}
