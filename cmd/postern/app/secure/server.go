package secure

import (
	"context"
	"log"
	"net"
	"net/http"
	"time"

	"k8s.io/klog/v2"
)

// maxHeaderBytes is far more than an API server sends of its own. It passes up to 25 KiB of the header of its user on: tracestate and
// baggage.
const maxHeaderBytes = 32 << 10

// Timeouts are the timeouts of a port. Header and Read begin after the handshake of a new connection, and with the first byte of
// each further request. Header bounds the handshake, too.
type Timeouts struct{ Header, Read, Write, Idle time.Duration }

var (
	// PortTimeouts are longer than the 30 s that a webhook call may take. An API server that is busy needs seconds for a handshake
	// and a header, and must not lose the connection before its own time-out, which is 10 s by default.
	PortTimeouts = Timeouts{Header: 15 * time.Second, Read: 35 * time.Second, Write: 40 * time.Second, Idle: 2 * time.Minute}
	// HealthTimeouts are those of a port that every pod can reach, and that serves requests
	// without a body. Kubelets and Prometheus connect again.
	HealthTimeouts = Timeouts{Header: 5 * time.Second, Read: 5 * time.Second, Write: 10 * time.Second, Idle: 15 * time.Second}
)

// NewServer returns an HTTP server, for Serve, that logs with the logger of the context. A cancelled context does not end its requests.
func NewServer(ctx context.Context, h http.Handler, t Timeouts) *http.Server {
	logger := klog.FromContext(ctx)
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: t.Header, ReadTimeout: t.Read, WriteTimeout: t.Write,
		IdleTimeout: t.Idle, MaxHeaderBytes: maxHeaderBytes,
		BaseContext: func(net.Listener) context.Context { return klog.NewContext(context.WithoutCancel(ctx), logger) },
		ErrorLog:    log.New(logWriter{logger}, "", 0),
	}
	follow(srv)
	return srv
}

// logWriter receives the connection errors of net/http. Port scans and probes cause
// such errors, so they are not logged by default.
type logWriter struct{ logger klog.Logger }

func (w logWriter) Write(p []byte) (int, error) {
	w.logger.V(4).Info("Connection", "message", string(p))
	return len(p), nil
}
