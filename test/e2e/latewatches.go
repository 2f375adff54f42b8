package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"
)

// etcdWatch is the path of etcd's watches.
const etcdWatch = "/etcdserverpb.Watch/Watch"

// StartLateWatches starts a proxy in front of an API server or an etcd, and returns its URL, which is without TLS. Whatever watches
// tell arrives late. All other answers are not delayed. An API server that reaches etcd by such a proxy does not keep up with the
// changes. With a delay of 3 s or more it would start no watch of a client, and answer some lists with 429 (blockTimeout in
// kube-apiserver's watch_cache.go). The test fails if nothing was delayed.
func StartLateWatches(tb testing.TB, server string, transport http.RoundTripper, delay time.Duration) string {
	tb.Helper()
	target, err := url.Parse(server)
	if err != nil {
		tb.Fatal(err)
	}
	var delayed atomic.Int64
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // Clients end their watches.
		ModifyResponse: func(r *http.Response) error {
			if r.Request.URL.Path == etcdWatch || r.Request.URL.Query().Get("watch") != "" {
				r.Body = newLateBody(r.Request.Context(), r.Body, delay, &delayed)
			}
			return nil
		},
	}
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	front := &http.Server{Handler: proxy, Protocols: protocols, ReadHeaderTimeout: startBound}
	done := make(chan error, 1)
	go func() { done <- front.Serve(listener) }()
	tb.Cleanup(func() {
		_ = front.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			tb.Errorf("The proxy ended: %v", err)
		}
		if delayed.Load() == 0 {
			tb.Errorf("The proxy in front of %s has delayed nothing", server)
		}
	})
	return "http://" + listener.Addr().String()
}

// GRPCTransport returns a transport to a gRPC server without TLS, such as etcd.
func GRPCTransport(tb testing.TB) http.RoundTripper {
	tb.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	tb.Cleanup(transport.CloseIdleConnections)
	return transport
}

// lateBody passes data on some time after it has arrived.
type lateBody struct {
	io.Closer

	ctx    context.Context //nolint:containedctx // Read has no context. It is that of the request whose answer this is.
	chunks <-chan chunk
	rest   []byte
	// delayed counts what was passed on late.
	delayed *atomic.Int64
}

// chunk is data or an error.
type chunk struct {
	due  time.Time
	data []byte
	err  error
}

func newLateBody(ctx context.Context, body io.ReadCloser, delay time.Duration, delayed *atomic.Int64) *lateBody {
	// It holds more than a test makes in the time of the delay.
	chunks := make(chan chunk, 10_000)
	go func() {
		buffer := make([]byte, 32<<10)
		for {
			n, err := body.Read(buffer)
			due := time.Now().Add(delay)
			for _, next := range []chunk{{due, bytes.Clone(buffer[:n]), nil}, {due, nil, err}} {
				if len(next.data) == 0 && next.err == nil {
					continue
				}
				select {
				case chunks <- next:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return &lateBody{Closer: body, ctx: ctx, chunks: chunks, delayed: delayed}
}

func (b *lateBody) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		select {
		case next := <-b.chunks:
			select {
			case <-time.After(time.Until(next.due)):
			case <-b.ctx.Done():
				return 0, b.ctx.Err()
			}
			if next.err != nil {
				return 0, next.err
			}
			b.delayed.Add(1)
			b.rest = next.data
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}
