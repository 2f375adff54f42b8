package sparselog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/internal/sparselog"
)

// TestAllow asks for several lines at each of several times. A line tells how many were suppressed before it.
func TestAllow(t *testing.T) {
	for name, tc := range map[string]struct {
		most int
		// want has the suppressed lines that each line tells of, and -1 for a line that is suppressed.
		want [][]int64
	}{
		"one at once":   {1, [][]int64{{0, -1, -1}, {2, -1}, {1}, {0}}},
		"three at once": {3, [][]int64{{0, 0, 0, -1, -1}, {2, -1}, {1, -1}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := sparselog.New(tc.most)
				for second, lines := range tc.want {
					for i, want := range lines {
						suppressed, ok := l.Allow()
						if !ok {
							suppressed = -1
						}
						if suppressed != want {
							t.Errorf("Second %d, line %d: got %d, want %d", second, i, suppressed, want)
						}
					}
					time.Sleep(time.Second)
				}
			})
		})
	}
}
