package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// sample is one measurement of one server.
type sample struct {
	load
	cpu, client time.Duration
}

// perRequest returns the CPU time of the server for one request.
func (s sample) perRequest() time.Duration { return s.cpu / time.Duration(s.requests) }

// cell holds the measurements for one pod and one number of connections: the
// samples of each server by round. Only samples of the same round are compared.
type cell struct {
	series      *series
	connections int
	samples     map[string][]sample
}

// measure measures all cells once per round. In each cell it measures the servers one
// after the other, so that other load on the machine affects all servers alike. Each
// round begins with a different server.
func (b *bench) measure(ctx context.Context, list []*server, cells []*cell) error {
	for round := range b.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, b.rounds)
		for _, c := range cells {
			for i := range list {
				s := list[(round+i)%len(list)]
				got, err := b.sample(ctx, s, c)
				if err != nil {
					return err
				}
				c.samples[s.name] = append(c.samples[s.name], got)
			}
		}
	}
	return nil
}

// sample warms up a server with the requests of the measurement, and then measures.
func (b *bench) sample(ctx context.Context, s *server, c *cell) (sample, error) {
	messages := c.series.messagesFor(s.kind)[:c.connections]
	requests := max(int(float64(b.requests)*c.series.share), c.connections)
	if _, err := s.send(ctx, messages, max(requests/10, c.connections)); err != nil {
		return sample{}, err
	}
	before, err := times(s)
	if err != nil {
		return sample{}, err
	}
	l, err := s.send(ctx, messages, requests)
	if err != nil {
		return sample{}, err
	}
	after, err := times(s)
	if err != nil {
		return sample{}, err
	}
	return sample{load: l, cpu: after[0] - before[0], client: after[1] - before[1]}, nil
}

// times returns the CPU time of a server and of this process.
func times(s *server) ([2]time.Duration, error) {
	theirs, err := cpuTime(s.cmd.Process.Pid)
	if err != nil {
		return [2]time.Duration{}, err
	}
	ours, err := cpuTime(os.Getpid())
	return [2]time.Duration{theirs, ours}, err
}
