package secure

import "syscall"

const (
	// healthConnections is the number of connections to the health port. A kubelet and a
	// Prometheus need few.
	healthConnections = 256
	// ownDescriptors are kept back for files, the API server and the backends of plugins.
	ownDescriptors = 128
	// sources is how many source addresses may have --max-connections-per-source
	// connections at the same time.
	sources = 2
	// leastConnections is the number of connections of a port of a process that may open
	// only few files.
	leastConnections = 16
)

// Limits bound the connections to a port. 0 is for no bound.
type Limits struct{ PerSource, Total int }

// ofOne returns how many connections one source may have, or 0 for no bound.
func (l Limits) ofOne() int {
	if l.PerSource > 0 && l.Total > 0 {
		return min(l.PerSource, l.Total)
	}
	return max(l.PerSource, l.Total)
}

// LimitsFor returns the bounds of the secure port and of the health port, for a process that may have a number of file
// descriptors. Neither port can use up the descriptors, which the other one needs. perSource is 0 for no bound.
func LimitsFor(descriptors uint64, perSource int) (secure, health Limits) {
	free := int(min(descriptors, 1<<20)) - ownDescriptors
	health.Total = max(leastConnections, min(healthConnections, free/4))
	secure = Limits{PerSource: perSource, Total: max(leastConnections, free-health.Total)}
	if perSource > 0 {
		secure.Total = min(secure.Total, sources*perSource)
	}
	return secure, health
}

// OpenFiles returns how many file descriptors the process may have.
func OpenFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // The usual limit of a process that does not raise it.
	}
	return limit.Cur
}
