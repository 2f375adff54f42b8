package app

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/restmapper"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admissions/admit"
	"github.com/postern-dev/postern/pkg/certs"
	"github.com/postern-dev/postern/pkg/router"
)

// mapperAge is how long what was discovered of the API is used, as in
// kube-apiserver. It is discovered again only when a plugin asks.
const mapperAge = 30 * time.Second

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

	enabled, warnings []string
	// background is what plugins do beside the requests.
	background []func(context.Context)
}

// newProcess builds what needs no network.
func (o *options) newProcess() (*process, error) {
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
	p := &process{options: o, registry: metrics.NewKubeRegistry(), enabled: enabled, warnings: append(warnings, more...)}
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
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(p.cluster.client.Discovery()))
	p.background = append(p.background, func(ctx context.Context) {
		wait.UntilWithContext(ctx, func(context.Context) { mapper.Reset() }, mapperAge)
	})
	return admit.Deps{
		Flags:      flags,
		Client:     p.cluster.client,
		Dynamic:    p.cluster.dynamic,
		Informers:  p.informers,
		RESTMapper: mapper,
		Authorize:  admit.CachedAuthorize(admit.NewAuthorize(p.cluster.client), p.authorizationTTL, clock.RealClock{}),
		Features:   p.features,
		Clock:      clock.RealClock{},
		Go:         func(f func(context.Context)) { p.background = append(p.background, f) },
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

// authority signs our own certificates.
func (p *process) authority(ctx context.Context) (certs.Source, error) {
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
