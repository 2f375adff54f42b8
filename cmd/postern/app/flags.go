package app

import (
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
)

// flagSets defines the flags of the serve command in the sections of --help. It
// returns an error if a flag of a plugin has the name of a flag of the process.
func (o *options) flagSets() (*cliflag.NamedFlagSets, error) {
	sections := &cliflag.NamedFlagSets{}
	o.addGenericFlags(sections.FlagSet("generic"))
	o.addAdmissionFlags(sections.FlagSet("admission"))
	plugins := sections.FlagSet("plugin")
	o.addSecureServingFlags(sections.FlagSet("secure serving"))
	o.addCertificateFlags(sections.FlagSet("certificate"))
	o.addRegistrationFlags(sections.FlagSet("registration"))
	o.addLimitFlags(sections.FlagSet("limit"))
	o.addHealthFlags(sections.FlagSet("health and metrics"))
	addLogFlags(sections.FlagSet("log"))
	return sections, o.addPluginFlags(plugins, sections)
}

func (o *options) addGenericFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "Kubeconfig of the cluster. Not needed in a pod.")
	fs.DurationVar(&o.startupTimeout, "startup-timeout", 30*time.Second, "How long to wait for the API server at start.")
	fs.DurationVar(&o.shutdownDelay, "shutdown-delay-duration", 10*time.Second, "How long to go on serving after a SIGTERM, while the cluster learns that this replica is not ready any more.")
	fs.BoolVar(&o.deregister, "deregister-on-shutdown", false, "Remove the webhook configurations when the last replica receives a SIGTERM. Without it, requests are refused while no replica runs, because the webhooks fail closed. With it, no plugin is enforced during that time, also between the two parts of a Recreate rollout.")
	fs.DurationVar(&o.shutdownConnections, "shutdown-connections-duration", 95*time.Second, "How long to go on answering on open connections after that. An API server closes those that are idle after 90s. Closing them before may lose a request.")
}

func (o *options) addAdmissionFlags(fs *pflag.FlagSet) {
	o.selection.AddFlags(fs)
	fs.BoolVar(&o.allowNoPlugins, "allow-no-plugins", false, "Serve although no plugin is enabled. The webhooks of an earlier run are then removed.")
	fs.StringVar(&o.configFile, "admission-control-config-file", "", "File with an AdmissionConfiguration of apiserver.config.k8s.io/v1, as for kube-apiserver.")
	o.features.AddFlag(fs)
	fs.DurationVar(&o.authorizationTTL, "authorization-cache-ttl", 0, "How long an answer to an access review is used again, for the same user and attributes: at most 1m. 0 asks each time.")
}

func (o *options) addSecureServingFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.bindAddress, "bind-address", "0.0.0.0", "IP address that the secure port listens on.")
	fs.IntVar(&o.securePort, "secure-port", 8443, "Port that serves the webhooks over TLS, and /livez and /readyz.")
	fs.StringVar(&o.tlsMinVersion, "tls-min-version", "VersionTLS12", "Minimum TLS version. Possible values: "+strings.Join(cliflag.TLSPossibleVersions(), ", ")+".")
	fs.StringSliceVar(&o.tlsCipherSuites, "tls-cipher-suites", nil, "Cipher suites of TLS 1.2. Go's own choice if not set.")
	fs.StringVar(&o.clientCA, "client-ca-file", "", "CA (PEM) of the client certificates that callers of the webhooks must have. Reloaded when it changes. Nothing is asked for if not set.")
	fs.StringSliceVar(&o.clientNames, "client-allowed-names", nil, "Common names or DNS names, one of which the client certificate must have. Any if not set.")
	fs.BoolVar(&o.disableHTTP2, "disable-http2-serving", true, "Serve HTTP/1.1 only, which is what an API server speaks to a Service.")
}

func (o *options) addCertificateFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.certDir, "cert-dir", "", "Folder to keep our CA in, instead of a Secret. For use outside a cluster.")
	fs.StringVar(&o.tlsCert, "tls-cert-file", "", "Serving certificate (PEM) from elsewhere, instead of our own. Reloaded when it changes.")
	fs.StringVar(&o.tlsKey, "tls-private-key-file", "", "Private key of --tls-cert-file.")
	fs.StringVar(&o.caBundle, "ca-bundle-file", "", "CA bundle (PEM) by which the API server is to verify --tls-cert-file.")
	o.certificates.addFlags(fs)
}

func (o *options) addRegistrationFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.webhookService, "webhook-service", "postern", "Service, as NAME or NAME:PORT, in --webhook-namespace by which the API server calls us.")
	fs.StringVar(&o.webhookURL, "webhook-url", "", "URL by which the API server calls us, instead of a Service: https://HOST:PORT.")
	fs.StringVar(&o.webhookNamespace, "webhook-namespace", defaultNamespace, "Our own namespace. It is exempt from all plugins but NodeRestriction, and owns the webhook configurations.")
	fs.StringVar(&o.failurePolicy, "failure-policy", "", "Fail or Ignore, for all webhooks. Each plugin's own if not set. Fail does not apply to webhooks for our own namespace.")
	fs.DurationVar(&o.webhookTimeout, "webhook-timeout", 10*time.Second, "How long the API server waits for an answer: whole seconds between 1s and 30s.")
	fs.StringSliceVar(&o.exemptNamespaces, "exempt-namespaces", nil, "Namespaces that are left alone, besides our own.")
}

func (o *options) addLimitFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.maxInFlight, "max-requests-inflight", 800, "Requests that are decided at a time, a quarter of them for nodes and the control plane alone. More are rejected with 429. 0 is no limit.")
	fs.StringVar(&o.maxBytes, "max-request-bytes-inflight", "", "Memory that requests may take at a time, such as 256Mi: for their bodies, for what these are decoded into, and for what plugins read. More are rejected with 429. "+
		"0 is no limit. Three eighths of the memory limit of the cgroup, or of GOMEMLIMIT, if not set.")
	fs.IntVar(&o.maxConnections, "max-connections-per-source", 1000, "Connections that one address may have to the secure port. More than half of them are not kept idle. 0 is no limit.")
}

func (o *options) addHealthFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.healthBindAddress, "health-bind-address", ":8080", "Address that serves /livez, /readyz and /metrics over plain HTTP. Empty switches it off.")
	fs.BoolVar(&o.authorizeMetrics, "metrics-authorization", false, "Serve /metrics on the secure port instead, to bearer tokens whose user may get the path /metrics, as the API server says.")
}

func addLogFlags(fs *pflag.FlagSet) {
	logs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logs)
	for _, name := range []string{"v", "vmodule"} {
		fs.AddGoFlag(logs.Lookup(name))
	}
}

// addPluginFlags defines the flags of the plugins. It returns an error if a flag of a
// plugin has the name of a flag of the process.
func (o *options) addPluginFlags(fs *pflag.FlagSet, process *cliflag.NamedFlagSets) error {
	o.pluginFlags = map[string]*string{}
	for p := range o.Families.Plugins() {
		for _, flag := range p.Flags {
			for _, section := range process.FlagSets {
				if section.Lookup(flag.Name) != nil {
					return fmt.Errorf("plugin %s: the flag --%s exists already", p.Name, flag.Name)
				}
			}
			o.pluginFlags[flag.Name] = fs.String(flag.Name, flag.Default, flag.Usage+" ("+p.Name+")")
			if flag.Default == "true" || flag.Default == "false" {
				// As for a flag of type bool, the value may be left out.
				fs.Lookup(flag.Name).NoOptDefVal = "true"
			}
		}
	}
	return nil
}
