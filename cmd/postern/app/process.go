package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/restmapper"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/internal/authorization"
	"github.com/postern-dev/postern/internal/segment"
	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/certs"
	"github.com/postern-dev/postern/pkg/registration"
	"github.com/postern-dev/postern/pkg/router"
)

// mapperAge is how long API discovery results are cached, as in kube-apiserver.
// They are discovered again only when a plugin asks.
const mapperAge = 30 * time.Second

// process holds the parts of a running Postern.
type process struct {
	*options
	deployment registration.Deployment
	cluster    *cluster
	informers  informers.SharedInformerFactory
	custom     *customInformers
	optional   *customInformers
	fleet      atomic.Pointer[registration.Fleet]
	registry   metrics.KubeRegistry
	services   []router.AdmissionService
	router     *router.Router
	health     *health
	registrar  *registration.Registrar
	notices    notices
	certs      certs.Source
	// segments are those of the registered paths.
	segments *segment.Set
	// sharedKey is the key of the segment if certs has no key.
	sharedKey *segment.Shared

	enabled, warnings []string
	// apiServer has the names in --api-server-plugins.
	apiServer []string
	// background holds the functions that plugins passed to Deps.Go.
	background []func(context.Context)
}

// newProcess returns a process with the clients of a cluster, and without plugins and services.
func (o *options) newProcess(c *cluster) *process {
	return &process{
		options: o, cluster: c, registry: metrics.NewKubeRegistry(),
		custom: newCustomInformers(c.dynamic), optional: newOptionalInformers(c.dynamic),
		informers: informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithTransform(trimmed)),
	}
}

// noPlugins is the error if no plugin is enabled. That is most often a mistake, such as --enable-admission-plugins=$PLUGINS with an
// unset variable, and the process would remove all webhooks.
const noPlugins = "no plugin is enabled, so that the webhooks of an earlier run would be removed: name plugins in --enable-admission-plugins, or give --allow-no-plugins"

// prepare builds the parts of the process that need no network.
func (o *options) prepare() (*process, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	enabled, warnings, err := o.selection.Enabled(o.Families)
	if err != nil {
		return nil, err
	}
	configs, more, err := o.Families.LoadConfigs(o.configFile, enabled)
	if err != nil {
		return nil, err
	}
	if len(enabled)+len(o.Services) == 0 && !o.allowNoPlugins {
		return nil, errors.New(strings.Join(append([]string{noPlugins}, more...), "; "))
	}
	d, err := o.deployment()
	if err != nil {
		return nil, err
	}
	c, err := newCluster(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	p := o.newProcess(c)
	p.segments = segment.New(p.pathKeys)
	p.deployment, p.enabled, p.warnings = d, enabled, slices.Concat(warnings, more, o.unusedFlags(enabled))
	p.registry.RawMustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := p.makeServices(enabled, configs); err != nil {
		return nil, err
	}
	limits, err := o.limits(limitMemory())
	if err != nil {
		return nil, err
	}
	options := []router.Option{router.WithLimits(limits), router.WithTimeout(d.Timeout), router.WithNamespace(d.Namespace), router.WithSegments(p.segments.Accepted)}
	if p.router, err = router.New(p.services, router.NewMetrics(p.registry), options...); err != nil {
		return nil, err
	}
	return p, nil
}

// unusedFlags returns a warning for each flag of a plugin that is not enabled.
func (o *options) unusedFlags(enabled []string) []string {
	var warnings []string
	for p := range o.Families.Plugins() {
		for _, f := range p.Flags {
			if *o.pluginFlags[f.Name] != f.Default && !slices.Contains(enabled, p.Name) {
				warnings = append(warnings, fmt.Sprintf("--%s has no effect: %s is not enabled", f.Name, p.Name))
			}
		}
	}
	return warnings
}

// makeServices makes the services of the enabled plugins and the added services.
func (p *process) makeServices(enabled []string, configs admissions.Configs) error {
	var err error
	if p.apiServer, err = p.selection.APIServerPlugins(); err != nil {
		return err
	}
	deps := p.deps()
	services, err := p.Families.Services(deps, enabled, configs)
	if err != nil {
		return err
	}
	p.services = services
	return p.addServices(deps)
}

// addServices makes the services that do not belong to a family.
func (p *process) addServices(deps admit.Deps) error {
	for _, add := range p.Services {
		s, err := add(deps)
		if err != nil {
			return fmt.Errorf("service %s: %w", s.Path, err)
		}
		p.services = append(p.services, s)
	}
	return nil
}

func (p *process) deps() admit.Deps {
	flags := make(map[string]string, len(p.pluginFlags))
	for name, value := range p.pluginFlags {
		flags[name] = *value
	}
	flags[admit.APIServerFlag] = strings.Join(p.apiServer, ",")
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(p.cluster.client.Discovery()))
	p.background = append(p.background, func(ctx context.Context) {
		wait.UntilWithContext(ctx, func(context.Context) { mapper.Reset() }, mapperAge)
	})
	return admit.Deps{
		Flags:             flags,
		Client:            p.cluster.client,
		Dynamic:           p.cluster.dynamic,
		Metadata:          p.cluster.metadata,
		Informers:         p.informers,
		CustomInformers:   p.custom,
		OptionalInformers: p.optional,
		RESTMapper:        mapper,
		Authorize:         authorization.Cached(authorization.New(p.cluster.client), p.authorizationTTL, clock.RealClock{}),
		Features:          p.features,
		Clock:             clock.RealClock{},
		Timeout:           p.deployment.Timeout,
		Namespace:         p.deployment.Namespace,
		Go:                func(f func(context.Context)) { p.background = append(p.background, f) },
		Metrics:           p.registry,
		Observe:           observePlugins(p.registry, p.enabled),
		Warn:              func(plugin, message string) { p.warnings = append(p.warnings, plugin+": "+message) },
		Mixed:             p.mixed,
		Mended:            countMended(p.registry),
	}
}
