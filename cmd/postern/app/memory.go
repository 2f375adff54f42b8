package app

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/postern-dev/postern/pkg/router"
)

const (
	// defaultRequestBytes is the memory for requests if the process has no memory limit.
	defaultRequestBytes = 512 << 20

	// The garbage collector gets half of the limit of the cgroup. The rest is for memory that the collector does not
	// manage, such as the text of the program, and for what many sources hold at the same time.
	goShare, goWhole = 1, 2

	// garbagePercent is how much garbage, in percent of the live heap, the collector lets
	// grow before it runs, unless the environment sets GOGC. The live heap is small and
	// each request leaves garbage, so that Go's default of 100 spends much time on
	// collections. The soft memory limit still holds.
	garbagePercent = 400

	// Requests get three eighths of the limit. The caches of all plugins took 44 MiB with 2,000 pods (README.md). The
	// rest is free memory, so that the garbage collector runs rarely.
	requestShare, requestWhole = 3, 8
)

// limitMemory tunes the garbage collector, and sets the soft memory limit of the Go runtime from the limit of the process's
// cgroup, unless GOMEMLIMIT is set. It returns the limit of the process, or 0. Without a
// soft limit the collector lets garbage grow to the size of the live heap, and the kernel
// then kills the process.
func limitMemory() int64 {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return limit
	}
	limit, err := memlimit.FromCgroup()
	if err != nil || limit > math.MaxInt64/goShare {
		// There is no cgroup, or the cgroup has no limit.
		return 0
	}
	debug.SetMemoryLimit(int64(limit) / goWhole * goShare)
	return int64(limit)
}

// requestBytes returns --max-request-bytes-inflight, or a default that depends on the
// memory limit.
func (o *options) requestBytes(memory int64) (int64, error) {
	if o.maxBytes == "" {
		if memory == 0 {
			return defaultRequestBytes, nil
		}
		return max(router.MinBytes, memory/requestWhole*requestShare), nil
	}
	q, err := resource.ParseQuantity(o.maxBytes)
	if err != nil {
		return 0, fmt.Errorf("--max-request-bytes-inflight: %q: %w", o.maxBytes, err)
	}
	if n := q.Value(); n != 0 && n < router.MinBytes {
		return 0, fmt.Errorf("--max-request-bytes-inflight: %s is neither 0 nor %d MiB or more", o.maxBytes, router.MinBytes>>20)
	}
	return q.Value(), nil
}
