package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// client is one HTTP/1.1 connection to a server, as kube-apiserver has them. It sends one request at a time.
type client struct {
	transport *http.Transport
	request   http.Request
	answer    bytes.Buffer
}

// newClient returns a client of the server. It sends the same headers as kube-apiserver.
func (s *server) newClient(roots *x509.CertPool) *client {
	t := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		Protocols:       &http.Protocols{}, DisableCompression: true, MaxConnsPerHost: 1,
	}
	t.Protocols.SetHTTP1(true)
	return &client{transport: t, request: http.Request{
		Method: http.MethodPost,
		URL:    &url.URL{Scheme: "https", Host: s.address, Path: s.path, RawQuery: "timeout=10s"},
		Header: http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, */*"}, "User-Agent": {"kube-apiserver-admission"},
		},
	}}
}

// send sends a body and returns the body of the answer, which is valid until the
// next call.
func (c *client) send(ctx context.Context, body []byte) ([]byte, error) {
	req := c.request.WithContext(ctx)
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("sending a review: %w", err)
	}
	defer resp.Body.Close()
	c.answer.Reset()
	if _, err := c.answer.ReadFrom(resp.Body); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 1 {
		return nil, fmt.Errorf("answered %s %s: %s", resp.Proto, resp.Status, c.answer.Bytes())
	}
	return c.answer.Bytes(), nil
}

// message is a review that is ready to be sent.
type message struct {
	uid  types.UID
	body []byte
}

// load holds the measurements of a number of requests.
type load struct {
	requests  int
	wall      time.Duration
	latencies []time.Duration
}

// send sends the requests over one connection per message, one at a time on each
// connection. It checks that every answer allows the request and has its uid.
func (s *server) send(ctx context.Context, messages []message, requests int) (load, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	latencies := make([][]time.Duration, len(messages))
	start := time.Now()
	for i, m := range messages {
		wg.Go(func() {
			latencies[i] = make([]time.Duration, 0, requests)
			for next.Add(1) <= int64(requests) {
				begin := time.Now()
				answer, err := s.clients[i].send(ctx, m.body)
				if err == nil {
					err = m.allowedBy(answer)
				}
				if err != nil {
					cancel(fmt.Errorf("%s: %w", s.name, err))
					return
				}
				latencies[i] = append(latencies[i], time.Since(begin))
			}
		})
	}
	wg.Wait()
	l := load{requests: requests, wall: time.Since(start)}
	for _, some := range latencies {
		l.latencies = append(l.latencies, some...)
	}
	return l, context.Cause(ctx)
}

// allowedBy checks only the text of the answer, because decoding every answer would
// cost more than sending the request.
func (m message) allowedBy(answer []byte) error {
	if !bytes.Contains(answer, []byte(`"allowed":true`)) {
		return fmt.Errorf("not allowed: %s", answer)
	}
	if !bytes.Contains(answer, []byte(`"uid":"`+m.uid+`"`)) {
		return errors.New("the answer has another uid than the request")
	}
	return nil
}
