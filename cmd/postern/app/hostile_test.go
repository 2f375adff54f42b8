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
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/cmd/postern/app/secure/securetest"
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

// unfinishedHeader sends a part of a header that consists of lines.
func (p *limited) unfinishedHeader(line func(i int) string) func(conn net.Conn) error {
	var header strings.Builder
	header.WriteString("POST / HTTP/1.1\r\nHost: postern\r\n")
	for i := 0; header.Len() < 31<<10; i++ {
		header.WriteString(line(i))
	}
	config := p.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "127.0.0.1"
	return func(conn net.Conn) error {
		_, err := io.WriteString(tls.Client(conn, config), header.String())
		return err
	}
}

// unfinishedHandshake sends the first message of a handshake, with as much as fits into 4 KiB.
func unfinishedHandshake(t *testing.T) func(conn net.Conn) error {
	t.Helper()
	hello := securetest.Hello(t, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	hello = securetest.WithBinders(hello, (4000-len(hello))/2)
	return func(conn net.Conn) error {
		if _, err := conn.Write(hello); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 1))
		return err
	}
}

// unfinished opens as many connections as each source may have to the secure port, and sends a part of something on each. The process
// must admit pods beside them.
func unfinished(t *testing.T, p *limited, sources int, send func(conn net.Conn) error, pod string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	start := time.Now()
	var all, sent sync.WaitGroup
	answered := make(chan struct{})
	var opened atomic.Int32
	for i := range 16 {
		sent.Add(1)
		all.Go(func() {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 2, byte(1+i%sources))}}
			for range 1000 * sources / 16 {
				conn, err := d.DialContext(ctx, "tcp", p.address)
				if err != nil {
					continue // A connection that is closed for another one.
				}
				defer conn.Close()
				if send(conn) == nil {
					opened.Add(1)
				}
			}
			sent.Done()
			<-answered
		})
	}
	sent.Wait()
	took := time.Since(start)
	if codes := p.send(ctx, 40, 60, p.mutate, pod); codes[http.StatusOK] != 40 {
		t.Errorf("%d sources: got the codes %v, want 200", sources, codes)
	}
	t.Logf("%d sources sent a part on %d connections in %v; the most memory so far is %d bytes", sources, opened.Load(), took, p.peak())
	if int(opened.Load()) < 800*sources {
		t.Errorf("%d sources sent a part on %d connections, want at least %d", sources, opened.Load(), 800*sources)
	}
	close(answered)
	all.Wait()
	p.mustRun(t, "unfinished")
}
