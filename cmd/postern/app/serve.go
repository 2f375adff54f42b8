package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/certs"
	"github.com/postern-dev/postern/pkg/router"
)

// secretName is the Secret that our CA lives in.
const secretName = "postern-ca"

func newServe(services []ServiceFunc) *cobra.Command {
	o := &options{added: services}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the admission plugins (the default command)",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.serve(cmd.Context()) },
	}
	features, err := admissions.Features()
	if err != nil {
		cmd.RunE = func(*cobra.Command, []string) error { return err }
		return cmd
	}
	o.features = features
	o.addFlags(cmd.Flags())
	logging := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logging)
	for _, name := range []string{"v", "vmodule"} {
		cmd.Flags().AddGoFlag(logging.Lookup(name))
	}
	return cmd
}

// serve checks everything that can be checked, then opens the ports, and only
// then talks to the cluster: a mistake never leaves anything half-started.
func (o *options) serve(ctx context.Context) error {
	p, err := o.newProcess()
	if err != nil {
		return err
	}
	secure, plain, err := o.listen(ctx)
	if err != nil {
		return err
	}
	defer secure.Close()
	if plain != nil {
		defer plain.Close()
	}
	if o.tlsCert != "" {
		if p.certs, err = certs.NewFiles(ctx, o.tlsCert, o.tlsKey, o.caBundle, clock.RealClock{}); err != nil {
			return fmt.Errorf("certificates: %w", err)
		}
	}
	// A mistake is told in one line, so nothing was logged before the last of them
	// could show.
	p.announce(ctx)
	if err := p.cluster.reach(ctx, o.startupTimeout); err != nil {
		return err
	}
	if o.tlsCert == "" {
		if p.certs, err = p.authority(ctx); err != nil {
			return fmt.Errorf("certificates: %w", err)
		}
	}
	return p.run(ctx, secure, plain)
}

func (p *process) announce(ctx context.Context) {
	log := klog.FromContext(ctx)
	log.Info("Starting", "version", posternVersion(), "plugins", p.enabled)
	for _, w := range p.warnings {
		log.Info("Warning", "message", w)
	}
}

// run serves until ctx ends, and then drains.
func (p *process) run(ctx context.Context, secure, plain net.Listener) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer stop()
	failed := make(chan error, 5) // One for each task.
	start := func(f func(context.Context) error) {
		tasks.Go(func() {
			if err := f(background); err != nil {
				failed <- err
			}
		})
	}
	synced := &flagged{reason: errors.New("informers have not synced yet")}
	prepared := &flagged{reason: errors.New("stale webhook configurations have not been removed yet")}
	p.health = &health{checks: []check{{"certificates", p.certs.Ready}, {"informers", synced.ready}, {"registration", prepared.ready}}}
	srv, err := p.newServer(background, p.secureHandler(p.health, p.router), p.certs.GetCertificate)
	if err != nil {
		return err
	}
	registrar, err := router.NewRegistrar(p.cluster.dynamic, p.deployment, p.services, p.certs, p.metrics)
	if err != nil {
		return err
	}
	p.informers.StartWithContext(background)
	start(p.certs.Run)
	start(func(ctx context.Context) error { return p.awaitInformers(ctx, synced) })
	start(func(ctx context.Context) error { return p.register(ctx, registrar, prepared) })
	start(func(context.Context) error { return serveUntilClosed(srv.ServeTLS(secure, "", "")) })
	for _, f := range p.background {
		tasks.Go(func() { f(background) })
	}
	servers := []*http.Server{srv}
	if plain != nil {
		health := p.newHealthServer(background)
		servers = append(servers, health)
		start(func(context.Context) error { return serveUntilClosed(health.Serve(plain)) })
	}
	klog.FromContext(ctx).Info("Serving", "address", secure.Addr().String())
	select {
	case err := <-failed:
		errs := []error{err}
		for _, s := range servers {
			errs = append(errs, s.Close())
		}
		return errors.Join(errs...)
	case <-ctx.Done():
		return p.drain(background, p.health, servers...)
	}
}

func serveUntilClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// awaitInformers waits until every cache that a plugin asked for is filled.
func (p *process) awaitInformers(ctx context.Context, synced *flagged) error {
	for kind, ok := range p.informers.WaitForCacheSync(ctx.Done()) {
		if !ok {
			klog.FromContext(ctx).V(2).Info("Stopped before an informer had synced", "type", kind.String())
			return nil
		}
	}
	synced.set()
	return nil
}

// register removes what is stale, after which this replica may be ready, and
// keeps the configurations registered.
func (p *process) register(ctx context.Context, r *router.Registrar, prepared *flagged) error {
	for {
		err := r.Prepare(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // we are being stopped
		}
		klog.FromContext(ctx).Error(err, "Could not look for stale webhook configurations")
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reachPause):
		}
	}
	prepared.set()
	return r.Run(ctx, p.deployment.Probe(p.cluster.client, p.certs))
}

// newHealthServer serves health and metrics over plain HTTP.
func (p *process) newHealthServer(ctx context.Context) *http.Server {
	p.registry.RawMustRegister(metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Namespace: "postern", Name: "serving_certificate_expiry_timestamp_seconds", StabilityLevel: metrics.ALPHA,
		Help: "When the serving certificate expires, in seconds since 1970.",
	}, func() float64 { return float64(p.certs.NotAfter().Unix()) }))
	mux := http.NewServeMux()
	p.health.register(mux)
	mux.Handle("/metrics", metrics.HandlerFor(p.registry, metrics.HandlerOpts{}))
	return newHTTPServer(ctx, mux)
}
