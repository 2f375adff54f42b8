package registration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	probeInterval = time.Second
	probeTimeout  = 5 * time.Second
	// probeReminder is the interval at which a failing probe is reported. The first
	// report comes after probePatience: a Service has no endpoint before this replica
	// is ready.
	probeReminder = 30 * time.Second
	probePatience = 10 * time.Second
)

// waitForProbe returns true once probe succeeds, and false if ctx ends first. A
// webhook that fails closed must not be registered before its server can be
// reached.
func (r *Registrar) waitForProbe(ctx context.Context, probe func(context.Context) error) bool {
	log := klog.FromContext(ctx)
	interval := 100 * time.Millisecond
	next := time.Now().Add(probePatience)
	for {
		err := probe(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			r.setStatus(fmt.Errorf("not registered yet: %w", err))
			log.V(2).Info("Not registered yet: the API server cannot call Postern", "err", err)
		}
		if now := time.Now(); now.After(next) && ctx.Err() == nil {
			next = now.Add(probeReminder)
			log.Error(err, "Still not registered: the API server cannot call Postern")
			if r.Report != nil {
				r.Report(err)
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(interval):
			interval = min(2*interval, probeInterval)
		}
	}
}

// Probe returns a func that calls Postern as the API server would: by the Service
// or the URL, verified by the bundle. The API server resolves a Service by its
// object, not by DNS. The probe does the same. The clock tells whether the certificate is valid.
func (d Deployment) Probe(client kubernetes.Interface, b Bundle, now clock.PassiveClock) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		target, serverName, err := d.target(ctx, client)
		if err != nil {
			return err
		}
		config := &tls.Config{ServerName: serverName, MinVersion: tls.VersionTLS12, Time: now.Now}
		if pem := b.Bundle(); len(pem) > 0 {
			config.RootCAs = x509.NewCertPool()
			if !config.RootCAs.AppendCertsFromPEM(pem) {
				return errors.New("the CA bundle holds no certificate")
			}
		}
		transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, target+"/readyz", nil)
		if err != nil {
			return fmt.Errorf("calling ourselves: %w", err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return fmt.Errorf("calling ourselves: %w", err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("calling ourselves at %s: status %d", target, resp.StatusCode)
		}
		return nil
	}
}

// target returns the address that the API server would call, and the server name
// that it would verify.
func (d Deployment) target(ctx context.Context, client kubernetes.Interface) (address, serverName string, err error) {
	if d.URL != "" {
		u, err := url.Parse(d.URL)
		if err != nil {
			return "", "", fmt.Errorf("webhook URL: %w", err)
		}
		return "https://" + u.Host, u.Hostname(), nil
	}
	svc, err := client.CoreV1().Services(d.Namespace).Get(ctx, d.Service, metav1.GetOptions{})
	if err != nil {
		return "", "", fmt.Errorf("reading service %s/%s: %w", d.Namespace, d.Service, err)
	}
	serverName = d.Service + "." + d.Namespace + ".svc"
	host := svc.Spec.ClusterIP
	switch {
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		host = svc.Spec.ExternalName
	case host == "" || host == corev1.ClusterIPNone:
		host = serverName
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(int(d.Port))), serverName, nil
}
