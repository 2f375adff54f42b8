package app

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/cmd/postern/app/secure"
	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/registration"
)

// defaultNamespace is the namespace that Postern runs in by default.
const defaultNamespace = registration.DefaultNamespace

// options are the flags of the serve command.
type options struct {
	Program
	// pluginFlags has the values of the flags that belong to plugins, by name.
	pluginFlags map[string]*string

	selection      admissions.Selection
	allowNoPlugins bool
	configFile     string
	features       featuregate.MutableFeatureGate

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
	certificates       certificateFlags
	webhookService     string
	webhookURL         string
	webhookNamespace   string
	failurePolicy      string
	webhookTimeout     time.Duration
	exemptNamespaces   []string
	authorizationTTL   time.Duration
	maxInFlight        int
	maxBytes           string
	maxConnections     int
	authorizeMetrics   bool
	clientNames        []string

	shutdownConnections time.Duration
	deregister          bool
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
	errs = append(errs, o.checkNamespaces())
	if o.maxInFlight < 0 || o.maxConnections < 0 || o.shutdownDelay < 0 || o.shutdownConnections < 0 {
		wrong("--max-requests-inflight, --max-connections-per-source, --shutdown-delay-duration and --shutdown-connections-duration cannot be negative")
	}
	errs = append(errs, o.certificates.check())
	_, err := o.requestBytes(0)
	errs = append(errs, err)
	_, err = o.tlsConfig()
	errs = append(errs, err)
	if o.clientCA != "" {
		_, err = secure.NewClientCA(o.clientCA, secure.ClientCAAge, clock.RealClock{}, klog.Logger{})
		errs = append(errs, err)
	}
	if len(o.clientNames) > 0 && o.clientCA == "" {
		wrong("--client-allowed-names goes with --client-ca-file")
	}
	_, err = o.deployment()
	return errors.Join(append(errs, err)...)
}

func (o *options) checkNamespaces() error {
	var errs []error
	for _, ns := range append([]string{o.webhookNamespace}, o.exemptNamespaces...) {
		for _, problem := range validation.IsDNS1123Label(ns) {
			errs = append(errs, fmt.Errorf("namespace %q: %s", ns, problem))
		}
	}
	return errors.Join(errs...)
}

// tlsConfig returns the part of the TLS configuration that the flags define.
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

// deployment returns how the API server reaches the Postern process, and which
// objects are exempt.
func (o *options) deployment() (registration.Deployment, error) {
	d := registration.Deployment{
		Namespace: o.webhookNamespace, Port: 443, Timeout: o.webhookTimeout, ExemptNamespaces: o.exemptNamespaces,
		FailurePolicy: admissionregistrationv1.FailurePolicyType(o.failurePolicy), KeepCAs: keepSettles * o.certificates.settle,
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

// names returns the names that the serving certificate is valid for.
func servingNames(d registration.Deployment) (dns []string, ips []net.IP, err error) {
	if d.URL == "" {
		full := d.Service + "." + d.Namespace + ".svc"
		return []string{full, d.Service + "." + d.Namespace, full + ".cluster.local", d.CanaryHost()}, nil, nil
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
