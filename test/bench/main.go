// Command bench measures the CPU time that Postern takes for one request. It
// compares Postern with a minimal webhook and with controller-runtime. See
// README.md.
package main

import (
	"context"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(klog.NewContext(ctx, logr.Discard()), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	requests, rounds int
	pods, cases      string
	connections      int
	binary, baseline string
	jsonFile, docs   string
	quick, quota     bool
	scaled           bool
	// dir holds the files that the run builds and writes.
	dir string
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	b, err := parse(args)
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "postern-bench-"); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	// Stop the servers before the folder is removed.
	ctx, cancel := context.WithCancel(ctx)
	list := b.servers()
	defer func() {
		cancel()
		for _, s := range list {
			s.wait()
		}
		err = errors.Join(err, os.RemoveAll(b.dir))
	}()
	cells, err := b.cells()
	if err != nil {
		return err
	}
	if err := b.build(ctx); err != nil {
		return err
	}
	roots, err := b.writeFiles(ctx)
	if err != nil {
		return err
	}
	if b.scaled {
		return b.scale(ctx, roots, out)
	}
	if err := b.start(ctx, list, cells, roots); err != nil {
		return err
	}
	start := time.Now()
	if err := b.measure(ctx, list, cells); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "measured for %v\n", time.Since(start).Round(time.Second))
	r, err := newReport(b, list, cells)
	if err != nil {
		return err
	}
	if b.jsonFile != "" {
		if err := r.writeFile(b.jsonFile); err != nil {
			return err
		}
	}
	if b.docs != "" {
		if err := r.writeDocs(b.docs); err != nil {
			return err
		}
	}
	return r.write(out)
}

func parse(args []string) (*bench, error) {
	b := &bench{}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.IntVar(&b.requests, "requests", 4000, "requests in one measurement; fewer with larger pods")
	fs.IntVar(&b.rounds, "rounds", 5, "how often everything is measured")
	fs.StringVar(&b.pods, "pods", "", "only pods with this in their name")
	fs.IntVar(&b.connections, "connections", 0, "only this number of connections, if not 0")
	fs.BoolVar(&b.quick, "quick", false, "one short round: does it all still work?")
	fs.BoolVar(&b.scaled, "scale", false, "measure start, memory and latency in clusters of several sizes instead")
	fs.StringVar(&b.cases, "case", "", "with -scale: only the cases with this in their name")
	fs.StringVar(&b.jsonFile, "json", "", "file to write the numbers to, as JSON")
	fs.StringVar(&b.docs, "docs", "", "folder with performance.md, to write the results to")
	fs.StringVar(&b.binary, "postern", "", "the Postern to measure; built from this tree if not set")
	fs.StringVar(&b.baseline, "baseline", "", "another Postern to measure beside it")
	fs.BoolVar(&b.quota, "quota", false, "also measure ResourceQuota in the mode check, with one quota")
	if err := fs.Parse(args); err != nil {
		return nil, fmt.Errorf("flags: %w", err)
	}
	if b.quick {
		b.requests, b.rounds = 64, 1
	}
	if b.requests < 1 || b.rounds < 1 || fs.NArg() > 0 {
		return nil, errors.New("flags: -requests and -rounds are positive, and there are no arguments")
	}
	return b, nil
}

// cells returns a cell for each pod and each number of connections.
func (b *bench) cells() ([]*cell, error) {
	var out []*cell
	for _, s := range shapes() {
		if !strings.Contains(s.name, b.pods) {
			continue
		}
		if b.quick {
			s.connections = slices.DeleteFunc(s.connections, func(n int) bool { return n > 16 })
		}
		x, err := newSeries(s)
		if err != nil {
			return nil, err
		}
		for _, n := range s.connections {
			if b.connections != 0 && n != b.connections {
				continue
			}
			out = append(out, &cell{series: x, connections: n, samples: map[string][]sample{}})
		}
	}
	return out, nil
}

// most returns the largest number of connections.
func most(cells []*cell) int {
	n := 0
	for _, c := range cells {
		n = max(n, c.connections)
	}
	return n
}

// start starts the servers, opens all connections, and checks the servers' answers.
func (b *bench) start(ctx context.Context, list []*server, cells []*cell, roots *x509.CertPool) error {
	api, err := startAPI(ctx, http.HandlerFunc(serveAPI))
	if err != nil {
		return err
	}
	if err := b.writeKubeconfig(api); err != nil {
		return err
	}
	for _, s := range list {
		if err := s.start(ctx); err != nil {
			return err
		}
		for range most(cells) {
			s.clients = append(s.clients, s.newClient(roots))
		}
		for _, c := range cells {
			if err := s.check(ctx, c.series); err != nil {
				return err
			}
		}
	}
	return nil
}
