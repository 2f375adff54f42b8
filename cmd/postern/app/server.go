package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/cmd/postern/app/secure"
)

// finishTimeout bounds the requests that are in flight after the drain no longer
// waits for their connections.
const finishTimeout = 31 * time.Second

// listen opens the secure port and the health port. On error it opens neither.
func (o *options) listen(ctx context.Context) (port, plain net.Listener, err error) {
	var lc net.ListenConfig
	port, err = lc.Listen(ctx, "tcp", net.JoinHostPort(o.bindAddress, strconv.Itoa(o.securePort)))
	if err != nil {
		return nil, nil, fmt.Errorf("--secure-port: %w", err)
	}
	if o.healthBindAddress == "" {
		return port, nil, nil
	}
	plain, err = lc.Listen(ctx, "tcp", o.healthBindAddress)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("--health-bind-address: %w", err), port.Close())
	}
	return port, plain, nil
}

// newServer returns the server of the secure port.
func (o *options) newServer(ctx context.Context, h http.Handler, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), now clock.PassiveClock) (*http.Server, error) {
	config, err := o.tlsConfig()
	if err != nil {
		return nil, err
	}
	config.GetCertificate = certificate
	// The client of a session that is resumed is not verified again, and its ticket makes the hello larger. API servers resume none.
	config.SessionTicketsDisabled = true
	if o.clientCA != "" {
		clients, err := secure.NewClientCA(o.clientCA, secure.ClientCAAge, now, klog.FromContext(ctx))
		if err != nil {
			return nil, err
		}
		config.ClientAuth, config.VerifyPeerCertificate = tls.RequestClientCert, clients.Verify
	}
	srv := secure.NewServer(ctx, h, secure.PortTimeouts)
	srv.TLSConfig = config
	srv.Protocols = &http.Protocols{}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(!o.disableHTTP2)
	return srv, nil
}

// secureHandler serves health and the webhooks. If there is a client CA, the webhooks
// accept only callers with a certificate that it signed.
func (o *options) secureHandler(h *health, webhooks http.Handler) http.Handler {
	mux := http.NewServeMux()
	h.register(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if h.draining.Load() {
			// A request is lost if the client sends it on an idle connection while the
			// server closes that connection. The server therefore closes connections
			// with an answer, long before they time out.
			w.Header().Set("Connection", "close")
		}
		switch {
		case req.URL.Path == "/livez" || req.URL.Path == "/readyz":
			mux.ServeHTTP(w, req)
		case o.clientCA != "" && (req.TLS == nil || len(req.TLS.PeerCertificates) == 0):
			http.Error(w, "a client certificate is needed", http.StatusUnauthorized)
		case o.clientCA != "" && !secure.HasName(req.TLS, o.clientNames):
			http.Error(w, "the client certificate has none of the names that are allowed", http.StatusForbidden)
		default:
			webhooks.ServeHTTP(w, req)
		}
	})
}

// drain gives the cluster time to learn that this replica is going away. It then
// closes the listener, answers requests until the clients have closed their
// connections, and finishes the requests in flight.
//
// A request is lost if the client sends it on an idle connection while the server
// closes that connection: the API server does not repeat it. Connections therefore end
// with an answer, or when the client closes them.
func (o *options) drain(ctx context.Context, h *health, conns *secure.Connections, servers ...*http.Server) error {
	logger := klog.FromContext(ctx)
	h.draining.Store(true)
	logger.Info("Shutting down", "delay", o.shutdownDelay)
	ctx = context.WithoutCancel(ctx)
	time.Sleep(o.shutdownDelay)
	errs := []error{conns.Close()}
	conns.AwaitNone(ctx, o.shutdownConnections)
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	for _, s := range servers {
		errs = append(errs, s.Shutdown(ctx))
	}
	return errors.Join(errs...)
}
