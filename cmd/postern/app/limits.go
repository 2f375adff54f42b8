package app

import "github.com/postern-dev/postern/pkg/router"

// limits returns the limits on requests for a process with the given memory.
func (o *options) limits(memory int64) (router.Limits, error) {
	bytes, err := o.requestBytes(memory)
	return router.Limits{Requests: o.maxInFlight, Bytes: bytes}, err
}
