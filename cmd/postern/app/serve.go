package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"sync"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/cmd/postern/app/secure"
	"github.com/postern-dev/postern/internal/bodylog"
	"github.com/postern-dev/postern/pkg/certs"
	"github.com/postern-dev/postern/pkg/registration"
)

// secretName is the Secret that stores Postern's CA.
const secretName = "postern-ca"

// newServe returns the serve command and the sections of its flags.
func (p Program) newServe() (*cobra.Command, *cliflag.NamedFlagSets, error) {
	o := &options{Program: p}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the admission plugins (the default command)",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.serve(cmd.Context()) },
	}
	sections, err := o.init()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range sections.Order {
		cmd.Flags().AddFlagSet(sections.FlagSets[name])
	}
	return cmd, sections, nil
}

// init checks the list of families and defines the flags.
func (o *options) init() (*cliflag.NamedFlagSets, error) {
	if err := o.Families.Check(); err != nil {
		return nil, err
	}
	features, err := o.Families.Features()
	if err != nil {
		return nil, err
	}
	o.features = features
	return o.flagSets()
}

// serve checks the options first, then opens the ports, and then contacts the
// cluster. A mistake therefore never leaves a process half started.
func (o *options) serve(ctx context.Context) error {
	p, err := o.prepare()
	if err != nil {
		return err
	}
	port, plain, err := o.listen(ctx)
	if err != nil {
		return err
	}
	defer port.Close()
	if plain != nil {
		defer plain.Close()
	}
	if o.tlsCert != "" {
		if p.certs, err = certs.NewFiles(ctx, o.tlsCert, o.tlsKey, o.caBundle, p.cluster.time); err != nil {
			return fmt.Errorf("certificates: %w", err)
		}
	}
	// A mistake is reported in one line. Nothing is therefore logged before all
	// checks have passed.
	p.announce(ctx)
	if err := p.cluster.reach(ctx, o.startupTimeout); err != nil {
		return err
	}
	if o.tlsCert == "" {
		if p.certs, err = p.authority(bodylog.Without(ctx)); err != nil {
			return fmt.Errorf("certificates: %w", err)
		}
	}
	if err := p.shareKey(bodylog.Without(ctx)); err != nil {
		return err
	}
	return p.run(ctx, port, plain)
}

func (p *process) announce(ctx context.Context) {
	log := klog.FromContext(ctx)
	log.Info("Starting", "version", posternVersion(), "plugins", p.enabled)
	for _, w := range p.warnings {
		log.Info("Warning", "message", w)
	}
}

// run serves until ctx ends, and then drains.
func (p *process) run(ctx context.Context, port, plain net.Listener) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer stop()
	failed := make(chan error, 7) // One for each task.
	start := func(f func(context.Context) error) {
		tasks.Go(func() {
			if err := f(background); err != nil {
				failed <- err
			}
		})
	}
	synced := newFlagged(errors.New("informers have not synced yet"))
	prepared := newFlagged(errors.New("stale webhook configurations have not been removed yet"))
	fleet, err := p.newFleet()
	if err != nil {
		return err
	}
	p.registrar = registration.NewRegistrar(p.cluster.dynamic, p.deployment, p.services, bundle{p.certs}, p.segments, fleet, registration.NewMetrics(p.registry))
	p.registrar.Notify, p.registrar.CanaryPath = p.notices.tell, p.router.CanaryPath()
	p.health = &health{
		checks: []check{{"certificates", p.certs.Ready}, {"informers", func() error { return p.custom.explain(synced.ready()) }}, {"registration", func() error { return errors.Join(prepared.ready(), p.registrar.KeptOut()) }}},
		infos:  []check{{"webhooks", p.registrar.Status}},
	}
	secureLimits, healthLimits := secure.LimitsFor(secure.OpenFiles(), p.maxConnections)
	conns := secure.NewConnections(port, secureLimits, klog.FromContext(ctx))
	p.measure(conns)
	srv, err := p.newServer(background, p.withMetrics(p.secureHandler(p.health, secure.Callers(p.router.Serves, p.router))), p.certs.GetCertificate, p.cluster.time)
	if err != nil {
		return err
	}
	p.informers.StartWithContext(background)
	p.custom.Start(background.Done())
	p.optional.Start(background.Done())
	start(func(ctx context.Context) error { return p.certs.Run(bodylog.Without(ctx)) })
	if p.sharedKey != nil {
		start(func(ctx context.Context) error { return p.sharedKey.Run(bodylog.Without(ctx)) })
	}
	start(func(ctx context.Context) error { return p.awaitInformers(ctx, synced) })
	start(func(ctx context.Context) error { return p.register(ctx, fleet, synced, prepared) })
	start(func(context.Context) error {
		err := serveUntilClosed(secure.Serve(srv, conns))
		if p.health.draining.Load() && errors.Is(err, net.ErrClosed) {
			// The drain closed the listener.
			return nil
		}
		return err
	})
	for _, f := range p.background {
		tasks.Go(func() { f(p.router.Background(background)) })
	}
	servers := []*http.Server{srv}
	if plain != nil {
		healthConns := secure.NewConnections(plain, healthLimits, klog.FromContext(ctx))
		health := p.newHealthServer(background)
		servers = append(servers, health)
		start(func(context.Context) error { return serveUntilClosed(secure.Serve(health, healthConns)) })
	}
	klog.FromContext(ctx).Info("Serving", "address", port.Addr().String())
	select {
	case err := <-failed:
		errs := []error{err}
		for _, s := range servers {
			errs = append(errs, s.Close())
		}
		return errors.Join(errs...)
	case <-ctx.Done():
		p.leave(background)
		return p.drain(background, p.health, conns, servers...)
	}
}

func serveUntilClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// awaitInformers waits until every cache that a plugin requested is synced.
func (p *process) awaitInformers(ctx context.Context, synced *flagged) error {
	for kind, ok := range p.informers.WaitForCacheSync(ctx.Done()) {
		if !ok {
			klog.FromContext(ctx).V(2).Info("Stopped before an informer had synced", "type", kind.String())
			return nil
		}
	}
	if !p.custom.await(ctx) || !p.optional.await(ctx) {
		return nil
	}
	synced.set()
	// Filling the caches leaves garbage of several times their size, which would remain while there are few requests.
	debug.FreeOSMemory()
	return nil
}

// withMetrics serves /metrics beside next if --metrics-authorization is set.
func (p *process) withMetrics(next http.Handler) http.Handler {
	if !p.authorizeMetrics {
		return next
	}
	scrape := secure.Authorized(p.cluster.client, p.metricsHandler())
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == secure.MetricsPath {
			scrape.ServeHTTP(w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// measure registers the metrics of the process that the router does not have.
func (p *process) measure(conns *secure.Connections) {
	gauge := func(name, help string, value func() float64) {
		p.registry.RawMustRegister(metrics.NewGaugeFunc(&metrics.GaugeOpts{Namespace: "postern", Name: name, Help: help, StabilityLevel: metrics.ALPHA}, value))
	}
	gauge("serving_certificate_expiry_timestamp_seconds", "When the serving certificate expires, in seconds since 1970.",
		func() float64 { return float64(p.certs.NotAfter().Unix()) })
	gauge("clock_offset_seconds", "The time of the API server minus the time of this machine, in seconds.",
		func() float64 { return p.cluster.time.Offset().Seconds() })
	gauge("webhook_timeout_seconds", "How long the API server waits for an answer, in seconds.",
		func() float64 { return p.deployment.Timeout.Seconds() })
	gauge("replicas_mixed", "1 if replicas of another version may get requests, so that plugins reconsider their denials, else 0.", func() float64 {
		if p.mixed() {
			return 1
		}
		return 0
	})
	gauge("open_connections", "Open connections to the secure port.", func() float64 {
		open, _ := conns.Count()
		return float64(open)
	})
}

// newHealthServer serves health and metrics over plain HTTP.
func (p *process) newHealthServer(ctx context.Context) *http.Server {
	mux := http.NewServeMux()
	p.health.register(mux)
	if !p.authorizeMetrics {
		mux.Handle(secure.MetricsPath, p.metricsHandler())
	}
	return secure.NewServer(ctx, mux, secure.HealthTimeouts)
}

// metricsHandler serves the metrics to few callers at a time, because each answer takes
// about a megabyte of memory.
func (p *process) metricsHandler() http.Handler {
	scrape := metrics.HandlerFor(p.registry, metrics.HandlerOpts{})
	turns := secure.NewTurns(secure.Scrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !turns.Take(req.Context(), secure.HostOf(req.RemoteAddr)) {
			secure.TooManyCallers(w)
			return
		}
		defer turns.Release(secure.HostOf(req.RemoteAddr))
		scrape.ServeHTTP(w, req)
	})
}
