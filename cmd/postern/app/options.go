package app

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/router"
)

// defaultNamespace is Postern's own.
const defaultNamespace = "postern-system"

// options are the flags of the serve command.
type options struct {
	added []ServiceFunc
	// pluginFlags has the values of the flags that belong to plugins, by name.
	pluginFlags map[string]*string

	selection  admissions.Selection
	configFile string
	features   featuregate.MutableFeatureGate

	kubeconfig     string
	startupTimeout time.Duration

	bindAddress        string
	securePort         int
	healthBindAddress  string
	disableHTTP2       bool
	shutdownDelay      time.Duration
	tlsMinVersion      string
	tlsCipherSuites    []string
	tlsCert, tlsKey    string
	caBundle, clientCA string
	certDir            string
	webhookService     string
	webhookURL         string
	webhookNamespace   string
	failurePolicy      string
	webhookTimeout     time.Duration
	exemptNamespaces   []string
	authorizationTTL   time.Duration
	maxInFlight        int
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	o.selection.AddFlags(fs)
	fs.StringVar(&o.configFile, "admission-control-config-file", "", "File with an AdmissionConfiguration of apiserver.config.k8s.io/v1, as for kube-apiserver.")
	o.features.AddFlag(fs)
	o.addPluginFlags(fs)
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "Kubeconfig of the cluster. Not needed in a pod.")
	fs.DurationVar(&o.startupTimeout, "startup-timeout", 30*time.Second, "How long to wait for the API server at start.")

	fs.DurationVar(&o.authorizationTTL, "authorization-cache-ttl", 0, "How long an answer to an access review is used again, for the same user and attributes: at most 1m. 0 asks each time.")

	fs.StringVar(&o.bindAddress, "bind-address", "0.0.0.0", "IP address that the secure port listens on.")
	fs.IntVar(&o.securePort, "secure-port", 8443, "Port that serves the webhooks over TLS, and /livez and /readyz.")
	fs.StringVar(&o.healthBindAddress, "health-bind-address", ":8080", "Address that serves /livez, /readyz and /metrics over plain HTTP. Empty switches it off.")
	fs.BoolVar(&o.disableHTTP2, "disable-http2-serving", false, "Serve HTTP/1.1 only.")
	fs.DurationVar(&o.shutdownDelay, "shutdown-delay-duration", 10*time.Second, "How long to go on serving after a SIGTERM, while the cluster learns that this replica is not ready any more.")

	fs.StringVar(&o.tlsMinVersion, "tls-min-version", "VersionTLS12", "Minimum TLS version. Possible values: "+strings.Join(cliflag.TLSPossibleVersions(), ", ")+".")
	fs.StringSliceVar(&o.tlsCipherSuites, "tls-cipher-suites", nil, "Cipher suites of TLS 1.2. Go's own choice if not set.")
	fs.StringVar(&o.tlsCert, "tls-cert-file", "", "Serving certificate (PEM) from elsewhere, instead of our own. Reloaded when it changes.")
	fs.StringVar(&o.tlsKey, "tls-private-key-file", "", "Private key of --tls-cert-file.")
	fs.StringVar(&o.caBundle, "ca-bundle-file", "", "CA bundle (PEM) by which the API server is to verify --tls-cert-file.")
	fs.StringVar(&o.clientCA, "client-ca-file", "", "CA (PEM) of the client certificates that callers of the webhooks must have. Nothing is asked for if not set.")
	fs.StringVar(&o.certDir, "cert-dir", "", "Folder to keep our CA in, instead of a Secret. For use outside a cluster.")

	fs.StringVar(&o.webhookService, "webhook-service", "postern", "Service, as NAME or NAME:PORT, in --webhook-namespace by which the API server calls us.")
	fs.StringVar(&o.webhookURL, "webhook-url", "", "URL by which the API server calls us, instead of a Service: https://HOST:PORT.")
	fs.StringVar(&o.webhookNamespace, "webhook-namespace", defaultNamespace, "Our own namespace. It is exempt from all webhooks, and owns their configurations.")
	fs.StringVar(&o.failurePolicy, "failure-policy", "", "Fail or Ignore, for all webhooks. Each plugin's own if not set.")
	fs.DurationVar(&o.webhookTimeout, "webhook-timeout", 10*time.Second, "How long the API server waits for an answer: whole seconds between 1s and 30s.")
	fs.StringSliceVar(&o.exemptNamespaces, "exempt-namespaces", nil, "Namespaces that are left alone, besides our own.")
	fs.IntVar(&o.maxInFlight, "max-requests-inflight", 800, "Requests that are worked on at a time; more are answered 429. 0 is no limit.")
}

// addPluginFlags adds the flags that belong to plugins.
func (o *options) addPluginFlags(fs *pflag.FlagSet) {
	o.pluginFlags = map[string]*string{}
	for _, f := range admissions.Families() {
		for _, p := range f.Plugins {
			for _, flag := range p.Flags {
				o.pluginFlags[flag.Name] = fs.String(flag.Name, flag.Default, flag.Usage+" ("+p.Name+")")
			}
		}
	}
}

// check returns all mistakes in the flags.
func (o *options) check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if net.ParseIP(o.bindAddress) == nil {
		wrong("--bind-address: %q is not an IP address", o.bindAddress)
	}
	if o.authorizationTTL < 0 || o.authorizationTTL > time.Minute {
		wrong("--authorization-cache-ttl: %v is not between 0s and 1m", o.authorizationTTL)
	}
	if o.securePort < 1 || o.securePort > 65535 {
		wrong("--secure-port: %d is not between 1 and 65535", o.securePort)
	}
	if (o.tlsCert == "") != (o.tlsKey == "") {
		wrong("--tls-cert-file and --tls-private-key-file are given together or not at all")
	}
	if o.caBundle != "" && o.tlsCert == "" {
		wrong("--ca-bundle-file goes with --tls-cert-file")
	}
	if o.certDir != "" && o.tlsCert != "" {
		wrong("--cert-dir keeps our own CA, which --tls-cert-file does without")
	}
	if p := o.failurePolicy; p != "" && p != string(admissionregistrationv1.Fail) && p != string(admissionregistrationv1.Ignore) {
		wrong("--failure-policy: %q is neither Fail nor Ignore", p)
	}
	if d := o.webhookTimeout; d < time.Second || d > 30*time.Second || d%time.Second != 0 {
		wrong("--webhook-timeout: %v is not a whole number of seconds between 1s and 30s", d)
	}
	for _, ns := range append([]string{o.webhookNamespace}, o.exemptNamespaces...) {
		for _, problem := range validation.IsDNS1123Label(ns) {
			wrong("namespace %q: %s", ns, problem)
		}
	}
	if o.maxInFlight < 0 || o.shutdownDelay < 0 {
		wrong("--max-requests-inflight and --shutdown-delay-duration cannot be negative")
	}
	_, err := o.tlsConfig()
	errs = append(errs, err)
	_, err = o.clientCAs()
	errs = append(errs, err)
	_, err = o.deployment()
	return errors.Join(append(errs, err)...)
}

// tlsConfig is the part of it that comes from flags.
func (o *options) tlsConfig() (*tls.Config, error) {
	minVersion, err := cliflag.TLSVersion(o.tlsMinVersion)
	if err != nil {
		return nil, fmt.Errorf("--tls-min-version: %w", err)
	}
	suites, err := cliflag.TLSCipherSuites(o.tlsCipherSuites)
	if err != nil {
		return nil, fmt.Errorf("--tls-cipher-suites: %w", err)
	}
	return &tls.Config{MinVersion: minVersion, CipherSuites: suites}, nil
}

var serviceFlag = regexp.MustCompile(`^([a-z]([-a-z0-9]*[a-z0-9])?)(?::([0-9]+))?$`)

// deployment is how the API server reaches us, and what is exempt.
func (o *options) deployment() (router.Deployment, error) {
	d := router.Deployment{
		Namespace: o.webhookNamespace, Port: 443, Timeout: o.webhookTimeout, ExemptNamespaces: o.exemptNamespaces,
		FailurePolicy: admissionregistrationv1.FailurePolicyType(o.failurePolicy),
	}
	if o.webhookURL != "" {
		u, err := url.Parse(o.webhookURL)
		if err != nil || u.Scheme != "https" || u.Host == "" || (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return d, fmt.Errorf("--webhook-url: %q is not of the form https://HOST:PORT", o.webhookURL)
		}
		d.URL = "https://" + u.Host
		return d, nil
	}
	m := serviceFlag.FindStringSubmatch(o.webhookService)
	if m == nil {
		return d, fmt.Errorf("--webhook-service: %q is not of the form NAME or NAME:PORT", o.webhookService)
	}
	d.Service = m[1]
	if m[3] != "" {
		port, err := strconv.ParseInt(m[3], 10, 32)
		if err != nil || port < 1 || port > 65535 {
			return d, fmt.Errorf("--webhook-service: port %s is not between 1 and 65535", m[3])
		}
		d.Port = int32(port)
	}
	return d, nil
}

// names returns what the serving certificate is for.
func servingNames(d router.Deployment) (dns []string, ips []net.IP, err error) {
	if d.URL == "" {
		full := d.Service + "." + d.Namespace + ".svc"
		return []string{full, d.Service + "." + d.Namespace, full + ".cluster.local"}, nil, nil
	}
	u, err := url.Parse(d.URL)
	if err != nil {
		return nil, nil, fmt.Errorf("--webhook-url: %w", err)
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil {
		return nil, []net.IP{ip}, nil
	}
	return []string{u.Hostname()}, nil, nil
}
