package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"k8s.io/klog/v2"
)

const (
	readHeaderTimeout = 10 * time.Second
	// readTimeout and writeTimeout are beyond the 30 s that a webhook may take.
	readTimeout  = 35 * time.Second
	writeTimeout = 40 * time.Second
	idleTimeout  = 2 * time.Minute
	// maxHeaderBytes is far more than an API server sends.
	maxHeaderBytes = 64 << 10
	// finishTimeout is for requests in flight once the listener is closed.
	finishTimeout = 31 * time.Second
)

// listen opens the secure port and the health port. Both, or none with an error.
func (o *options) listen(ctx context.Context) (secure, plain net.Listener, err error) {
	var lc net.ListenConfig
	secure, err = lc.Listen(ctx, "tcp", net.JoinHostPort(o.bindAddress, strconv.Itoa(o.securePort)))
	if err != nil {
		return nil, nil, fmt.Errorf("--secure-port: %w", err)
	}
	if o.healthBindAddress == "" {
		return secure, nil, nil
	}
	plain, err = lc.Listen(ctx, "tcp", o.healthBindAddress)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("--health-bind-address: %w", err), secure.Close())
	}
	return secure, plain, nil
}

// newServer returns the server of the secure port.
func (o *options) newServer(ctx context.Context, h http.Handler, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) (*http.Server, error) {
	config, err := o.tlsConfig()
	if err != nil {
		return nil, err
	}
	config.GetCertificate = certificate
	if config.ClientCAs, err = o.clientCAs(); err != nil {
		return nil, err
	}
	if config.ClientCAs != nil {
		// The kubelet has no such certificate, so it is the handler that insists.
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	srv := newHTTPServer(ctx, h)
	srv.TLSConfig = config
	srv.Protocols = &http.Protocols{}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(!o.disableHTTP2)
	return srv, nil
}

// clientCAs returns nil where callers need no certificate.
func (o *options) clientCAs() (*x509.CertPool, error) {
	if o.clientCA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(o.clientCA)
	if err != nil {
		return nil, fmt.Errorf("--client-ca-file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--client-ca-file: %s holds no certificate", o.clientCA)
	}
	return pool, nil
}

func newHTTPServer(ctx context.Context, h http.Handler) *http.Server {
	logger := klog.FromContext(ctx)
	return &http.Server{
		Handler: h, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		BaseContext: func(net.Listener) context.Context { return klog.NewContext(context.WithoutCancel(ctx), logger) },
		ErrorLog:    log.New(logWriter{logger}, "", 0),
	}
}

// logWriter is where net/http writes what goes wrong with connections. Port scans
// and probes make it, so it is not worth a line by default.
type logWriter struct{ logger klog.Logger }

func (w logWriter) Write(p []byte) (int, error) {
	w.logger.V(4).Info("Connection", "message", string(p))
	return len(p), nil
}

// secureHandler serves health and the webhooks. With a client CA the webhooks
// are for callers with a certificate of it.
func (o *options) secureHandler(h *health, webhooks http.Handler) http.Handler {
	mux := http.NewServeMux()
	h.register(mux)
	limited := limitInFlight(webhooks, o.maxInFlight)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if h.draining.Load() {
			// A request that is sent on an idle connection at the moment we close it is
			// lost, so connections end with an answer, long before that moment.
			w.Header().Set("Connection", "close")
		}
		switch {
		case req.URL.Path == "/livez" || req.URL.Path == "/readyz":
			mux.ServeHTTP(w, req)
		case o.clientCA != "" && (req.TLS == nil || len(req.TLS.VerifiedChains) == 0):
			http.Error(w, "a client certificate is needed", http.StatusUnauthorized)
		default:
			limited.ServeHTTP(w, req)
		}
	})
}

// limitInFlight bounds the memory that request bodies can take.
func limitInFlight(next http.Handler, limit int) http.Handler {
	if limit == 0 {
		return next
	}
	slots := make(chan struct{}, limit)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			next.ServeHTTP(w, req)
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests at a time", http.StatusTooManyRequests)
		}
	})
}

// drain lets the cluster learn that this replica is going, then closes the
// listeners and waits for what is in flight.
func (o *options) drain(ctx context.Context, h *health, servers ...*http.Server) error {
	logger := klog.FromContext(ctx)
	h.draining.Store(true)
	logger.Info("Shutting down", "delay", o.shutdownDelay)
	ctx = context.WithoutCancel(ctx)
	time.Sleep(o.shutdownDelay)
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.Shutdown(ctx))
	}
	return errors.Join(errs...)
}
