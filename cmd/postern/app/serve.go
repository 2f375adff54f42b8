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

	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/restmapper"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admissions/admit"
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

// process is what a Postern is made of.
type process struct {
	*options
	deployment router.Deployment
	cluster    *cluster
	informers  informers.SharedInformerFactory
	registry   metrics.KubeRegistry
	services   []router.AdmissionService
	router     *router.Router
	metrics    *router.Metrics
	health     *health
	certs      certs.Source
}

// serve checks everything that can be checked, then opens the ports, and only
// then talks to the cluster: a mistake never leaves anything half-started.
func (o *options) serve(ctx context.Context) error {
	p, err := o.newProcess(ctx)
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
	if err := p.cluster.reach(ctx, o.startupTimeout); err != nil {
		return err
	}
	if p.certs, err = p.source(ctx); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	return p.run(ctx, secure, plain)
}

// newProcess builds what needs no network.
func (o *options) newProcess(ctx context.Context) (*process, error) {
	log := klog.FromContext(ctx)
	if err := o.check(); err != nil {
		return nil, err
	}
	enabled, warnings, err := o.selection.Enabled()
	if err != nil {
		return nil, err
	}
	configs, more, err := admissions.LoadConfigs(o.configFile, enabled)
	if err != nil {
		return nil, err
	}
	for _, w := range append(warnings, more...) {
		log.Info("Warning", "message", w)
	}
	p := &process{options: o, registry: metrics.NewKubeRegistry()}
	if p.deployment, err = o.deployment(); err != nil {
		return nil, err
	}
	if p.cluster, err = newCluster(o.kubeconfig); err != nil {
		return nil, err
	}
	p.registry.RawMustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p.metrics = router.NewMetrics(p.registry)
	p.informers = informers.NewSharedInformerFactoryWithOptions(p.cluster.client, 0, informers.WithTransform(withoutManagedFields))
	if err := p.makeServices(enabled, configs); err != nil {
		return nil, err
	}
	if p.router, err = router.New(p.services, p.metrics); err != nil {
		return nil, err
	}
	log.Info("Starting", "version", posternVersion(), "plugins", enabled)
	return p, nil
}

// makeServices makes those of the enabled plugins, and those that were added.
func (p *process) makeServices(enabled []string, configs admissions.Configs) error {
	deps := p.deps()
	services, err := admissions.Services(deps, enabled, configs)
	if err != nil {
		return err
	}
	for _, add := range p.added {
		s, err := add(deps)
		if err != nil {
			return fmt.Errorf("service %s: %w", s.Path, err)
		}
		services = append(services, s)
	}
	p.services = services
	return nil
}

func (p *process) deps() admit.Deps {
	flags := make(map[string]string, len(p.pluginFlags))
	for name, value := range p.pluginFlags {
		flags[name] = *value
	}
	return admit.Deps{
		Flags:      flags,
		Client:     p.cluster.client,
		Dynamic:    p.cluster.dynamic,
		Informers:  p.informers,
		RESTMapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(p.cluster.client.Discovery())),
		Authorize:  admit.NewAuthorize(p.cluster.client),
		Features:   p.features,
		Clock:      clock.RealClock{},
		Metrics:    admit.NewMetrics(p.registry),
	}
}

// withoutManagedFields keeps out of the caches what no plugin reads.
func withoutManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

// source is where our certificate comes from.
func (p *process) source(ctx context.Context) (certs.Source, error) {
	if p.tlsCert != "" {
		return certs.NewFiles(ctx, p.tlsCert, p.tlsKey, p.caBundle, clock.RealClock{})
	}
	dns, ips, err := servingNames(p.deployment)
	if err != nil {
		return nil, err
	}
	var store certs.Store = certs.NewSecretStore(p.cluster.client, p.webhookNamespace, secretName)
	if p.certDir != "" {
		store = certs.NewDirStore(p.certDir)
	}
	return certs.NewAuthority(ctx, store, certs.Options{DNSNames: dns, IPs: ips, Clock: clock.RealClock{}})
}

// run serves until ctx ends, and then drains.
func (p *process) run(ctx context.Context, secure, plain net.Listener) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer stop()
	failed := make(chan error, 4)
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
	servers := []*http.Server{srv}
	if plain != nil {
		health := p.newHealthServer(background)
		servers = append(servers, health)
		start(func(context.Context) error { return serveUntilClosed(health.Serve(plain)) })
	}
	klog.FromContext(ctx).Info("Serving", "address", secure.Addr().String())
	select {
	case err := <-failed:
		return errors.Join(err, srv.Close())
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
