package app_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// dial opens a connection to the secure port.
func (p *limited) dial(ctx context.Context) (net.Conn, error) {
	d := tls.Dialer{Config: p.client.Transport.(*http.Transport).TLSClientConfig.Clone()}
	conn, err := d.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(time.Minute))
}

// begin sends the header of a review, and a part of its body.
func (p *limited) begin(conn net.Conn, timeout string, length int, part string) {
	_, _ = fmt.Fprintf(conn, "POST %s?timeout=%s HTTP/1.1\r\nHost: postern\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		strings.TrimPrefix(p.mutate, p.url), timeout, length, part)
}

// lateBodies sends bodies whose last byte does not arrive in time. A connection that stays open must serve the next
// request.
func lateBodies(ctx context.Context, t *testing.T, p *limited) {
	t.Helper()
	body := podReview(`{"containers":[{"name":"c","image":"i"}]}`)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			conn, err := p.dial(ctx)
			if err != nil {
				t.Errorf("Dialing: %v", err)
				return
			}
			defer conn.Close()
			answers := bufio.NewReader(conn)
			p.begin(conn, "1s", len(body), body[:len(body)-1])
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Errorf("Late bodies: reading an answer: %v", err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			if resp.Close {
				return
			}
			_, _ = io.WriteString(conn, body[len(body)-1:])
			p.begin(conn, "10s", len(body), body)
			if resp, err = http.ReadResponse(answers, nil); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("Late bodies: got %+v (%v) for the next request, want 200", resp, err)
			}
		})
	}
	all.Wait()
}

// idleConnections opens more connections to both ports than the process may have file descriptors, from one source and from
// many. Probes of the health port and reviews of an API server must pass.
func idleConnections(ctx context.Context, t *testing.T, p *limited) {
	t.Helper()
	for _, sources := range []int{1, 64} {
		for _, port := range []string{p.health, p.address} {
			for i := range 1500 {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%sources))}}
				conn, err := d.DialContext(ctx, "tcp", port)
				if err != nil {
					continue // A connection that is closed at once.
				}
				defer conn.Close()
			}
		}
		for range 80 {
			resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + p.health + "/livez")
			if err != nil {
				t.Errorf("Idle connections of %d sources: the health port does not answer: %v", sources, err)
				break
			}
			resp.Body.Close()
		}
		if codes := p.send(ctx, 40, 1, p.mutate, podReview(`{"containers":[{"name":"c","image":"i"}]}`)); codes[http.StatusOK] != 40 {
			t.Errorf("Idle connections of %d sources: got the codes %v, want 200", sources, codes)
		}
	}
}

// slowReaders sends pods whose patch is large, and reads no answer.
func slowReaders(ctx context.Context, t *testing.T, p *limited) {
	t.Helper()
	body := podReview(listOf("containers", "{}", 40_000))
	var all sync.WaitGroup
	for range 160 {
		conn, err := p.dial(ctx)
		if err != nil {
			t.Errorf("Slow readers: dialing: %v", err)
			return
		}
		defer conn.Close()
		all.Go(func() { p.begin(conn, "30s", len(body), body) })
	}
	all.Wait()
	// The process needs seconds to decide them.
	_, err := p.client.Get(p.url + "/readyz")
	if err != nil {
		t.Errorf("Slow readers: %v", err)
	}
	codes := p.send(ctx, 16, 20, p.mutate, body)
	if codes[http.StatusOK] == 0 {
		t.Errorf("Slow readers: got the codes %v beside them, want 200", codes)
	}
}

// largeEnvelopes sends envelopes that take 100 MiB of memory when they are decoded. They have no uid, so that the code of the
// denial is that of the answer.
func largeEnvelopes(ctx context.Context, t *testing.T, p *limited) {
	t.Helper()
	body := strings.Replace(podReview("{}"), `"uid":"u",`, `"userInfo":{"groups":[`+strings.TrimSuffix(strings.Repeat(`"",`, 2_400_000), ",")+`]},`, 1)
	if codes := p.send(ctx, 24, 20, p.mutate, body); codes[http.StatusRequestEntityTooLarge] != 24 {
		t.Errorf("Large envelopes: got the codes %v, want 413", codes)
	}
}
