package app

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

// connectionLimits bound the connections to a port. 0 is for no bound.
type connectionLimits struct{ perSource, total int }

// connectionLimits returns the bounds of the two ports. Neither port can use up the file
// descriptors of the process, which the other one needs.
func (o *options) connectionLimits(descriptors uint64) (secure, health connectionLimits) {
	free := int(min(descriptors, 1<<20)) - ownDescriptors
	health.total = max(leastConnections, min(healthConnections, free/4))
	secure = connectionLimits{perSource: o.maxConnections, total: max(leastConnections, free-health.total)}
	if o.maxConnections > 0 {
		secure.total = min(secure.total, sources*o.maxConnections)
	}
	return secure, health
}

// openFiles returns how many file descriptors the process may have.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // The usual limit of a process that does not raise it.
	}
	return limit.Cur
}
