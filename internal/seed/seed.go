// Package seed chooses the seeds of random tests. Tests inside package admit cannot import admittest, which imports
// admit, so the seed has its own package.
package seed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// First returns the first seed of the random tests: 1, or the value of POSTERN_TEST_SEED.
func First(tb testing.TB) int64 {
	tb.Helper()
	value := os.Getenv("POSTERN_TEST_SEED")
	if value == "" {
		return 1
	}
	first, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		tb.Fatalf("POSTERN_TEST_SEED: %v", err)
	}
	return first
}

// Chance returns a generator that starts at the first seed.
func Chance(tb testing.TB) *rand.Rand {
	tb.Helper()
	return rand.New(rand.NewPCG(uint64(First(tb)), 0)) //nolint:gosec // Tests have to be repeatable.
}
