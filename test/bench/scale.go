package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"
)

// scaleCase is a Postern with some plugins in a cluster of some size.
type scaleCase struct {
	name                    string
	nodes, namespaces, pods int
	plugins                 string
}

func scaleCases() []scaleCase {
	const five = "AlwaysPullImages,LimitRanger,PodNodeSelector,PodSecurity,ServiceAccount"
	return []scaleCase{
		{"small cluster, 5 plugins", smallNodes, smallNamespaces, smallPods, five},
		{"small cluster, 40 plugins", smallNodes, smallNamespaces, smallPods, podPlugins + "," + otherPlugins},
		{"5,000 nodes, 10,000 namespaces, 150,000 pods, 40 plugins", 5000, 10_000, 150_000, podPlugins + "," + otherPlugins},
	}
}

// scaleRow holds the measurements of a case.
type scaleRow struct {
	name string
	// ready is the time from the start of the process until it is ready, the median of the starts.
	ready time.Duration
	// memory is that after idleTime.
	memory memRow
	// steady and resync are the 50th and 99th percentile of the latency, in steady state and while all caches are listed
	// again.
	steady, resync [2]time.Duration
}

const (
	smallNodes, smallNamespaces, smallPods = 3, 10, 100

	starts = 5
	// idleTime is the time without requests before the memory is measured.
	idleTime = 10 * time.Second
	loadTime = 10 * time.Second
)

// scale measures Postern in clusters of several sizes.
func (b *bench) scale(ctx context.Context, roots *x509.CertPool, out io.Writer) error {
	bounds, err := b.idleOfBounds(ctx)
	if err != nil {
		return err
	}
	var rows []scaleRow
	for _, c := range scaleCases() {
		if !strings.Contains(c.name, b.cases) {
			continue
		}
		row, err := b.scaleOf(ctx, c, roots)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		rows = append(rows, row)
	}
	var results bytes.Buffer
	fmt.Fprintf(&results, "Measured on %s with %s on %d cores (%s), Postern %s.\n\n", time.Now().UTC().Format(time.DateOnly), runtime.Version(),
		runtime.NumCPU(), processor(), versionOf(b.binary))
	fmt.Fprintf(&results, "| case | ready after, ms | idle memory, MiB | of it private | most memory, MiB | p50, p99, ms | p50, p99 while caches are listed again, ms |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	for _, r := range rows {
		fmt.Fprintf(&results, "| %s | %.0f | %d | %d | %d | %.1f, %.1f | %.1f, %.1f |\n", r.name, ms(r.ready), r.memory.RSS>>20, r.memory.Private>>20, r.memory.Most>>20,
			ms(r.steady[0]), ms(r.steady[1]), ms(r.resync[0]), ms(r.resync[1]))
	}
	fmt.Fprintf(&results, "\n| program, in the small cluster | idle memory, MiB | of it private |\n| --- | --- | --- |\n")
	for _, r := range bounds {
		fmt.Fprintf(&results, "| %s | %d | %d |\n", r.name, r.memory.RSS>>20, r.memory.Private>>20)
	}
	if b.docs != "" {
		if err := writeResults(b.docs, "scale", results.Bytes()); err != nil {
			return err
		}
	}
	_, err = out.Write(results.Bytes())
	return err
}

// idleOfBounds measures the idle memory of two minimal programs: the lower bounds for a webhook in Go, and for one that
// uses client-go.
func (b *bench) idleOfBounds(ctx context.Context) ([]scaleRow, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := b.startCluster(ctx, newCluster(smallNodes, smallNamespaces, smallPods)); err != nil {
		return nil, err
	}
	list := []*server{
		{name: "only net/http with TLS", command: b.simple("floor")},
		{name: "three informers of client-go, and net/http with TLS", command: func(address string) []string {
			return append(b.simple("informers")(address), "-kubeconfig", b.kubeconfig())
		}},
	}
	defer func() {
		cancel()
		for _, s := range list {
			s.wait()
		}
	}()
	for _, s := range list {
		if err := s.start(ctx); err != nil {
			return nil, err
		}
	}
	time.Sleep(idleTime)
	var rows []scaleRow
	for _, s := range list {
		use, err := memory(s.cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		rows = append(rows, scaleRow{name: s.name, memory: use})
	}
	return rows, nil
}

// startCluster serves the API of a cluster, and writes its kubeconfig.
func (b *bench) startCluster(ctx context.Context, api *cluster) error {
	url, err := startAPI(ctx, api)
	if err != nil {
		return err
	}
	return b.writeKubeconfig(url)
}

func (b *bench) scaleOf(ctx context.Context, c scaleCase, roots *x509.CertPool) (scaleRow, error) {
	row := scaleRow{name: c.name}
	api := newCluster(c.nodes, c.namespaces, c.pods)
	if err := b.startCluster(ctx, api); err != nil {
		return row, err
	}
	var times []time.Duration
	for i := range starts {
		ctx, cancel := context.WithCancel(ctx)
		s, took, err := b.startScaled(ctx, c.plugins)
		if err == nil && i == starts-1 {
			err = b.fill(ctx, &row, s, api, roots)
		}
		cancel()
		s.wait()
		if err != nil {
			return row, err
		}
		times = append(times, took)
	}
	slices.Sort(times)
	row.ready = times[len(times)/2]
	return row, nil
}

// startScaled starts a Postern, and returns how long it took to be ready.
func (b *bench) startScaled(ctx context.Context, plugins string) (*server, time.Duration, error) {
	health, err := freeAddress(ctx)
	if err != nil {
		return &server{}, 0, err
	}
	command := b.postern(b.posternBinary(), plugins)
	s := &server{name: nameMutate, path: "/pods/mutate", kind: mutates, command: func(address string) []string {
		return append(slices.DeleteFunc(command(address), func(arg string) bool { return strings.HasPrefix(arg, "--health-bind-address") }),
			"--health-bind-address="+health)
	}}
	if err := s.launch(ctx); err != nil {
		return s, 0, err
	}
	begin := time.Now()
	for time.Since(begin) < startTimeout {
		if isReady(ctx, "http://"+health+"/readyz") {
			return s, time.Since(begin), nil
		}
		select {
		case <-s.ended:
			return s, 0, fmt.Errorf("it ended at its start:\n%s", s.log.String())
		case <-time.After(time.Millisecond):
		}
	}
	return s, 0, fmt.Errorf("it was not ready after %v", startTimeout)
}

func isReady(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// fill measures the memory and the latencies of a Postern that is ready.
func (b *bench) fill(ctx context.Context, row *scaleRow, s *server, api *cluster, roots *x509.CertPool) error {
	select {
	case <-time.After(idleTime):
	case <-ctx.Done():
		return ctx.Err()
	}
	var err error
	if row.memory, err = memory(s.cmd.Process.Pid); err != nil {
		return err
	}
	medium := shapes()[1]
	medium.connections = []int{4}
	x, err := newSeries(medium)
	if err != nil {
		return err
	}
	for range x.connections[0] {
		s.clients = append(s.clients, s.newClient(roots))
	}
	if err := s.check(ctx, x); err != nil {
		return err
	}
	if row.steady, err = s.latencies(ctx, x, func() {}); err != nil {
		return err
	}
	row.resync, err = s.latencies(ctx, x, api.resync)
	return err
}

// latencies returns the 50th and 99th percentile of the latencies of half the rate that the server can answer, and calls
// disturb meanwhile.
func (s *server) latencies(ctx context.Context, x *series, disturb func()) ([2]time.Duration, error) {
	var all []time.Duration
	begin := time.Now()
	for disturbed := false; time.Since(begin) < loadTime; time.Sleep(5 * time.Millisecond) {
		if !disturbed && time.Since(begin) > time.Second {
			disturb()
			disturbed = true
		}
		l, err := s.send(ctx, x.messages, len(x.messages))
		if err != nil {
			return [2]time.Duration{}, err
		}
		all = append(all, l.latencies...)
	}
	slices.SortFunc(all, cmp.Compare)
	return [2]time.Duration{quantile(all, 0.5), quantile(all, 0.99)}, nil
}
