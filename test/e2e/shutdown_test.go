package e2e_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/test/e2e"
)

const (
	loadClients = 8
	// loadPause is the pause between two pods. Connections are idle during the pause, so a replica closes some idle
	// connections.
	loadPause = 30 * time.Millisecond
	// loadLimit is the maximum number of pods of a load. It ends a load that is not stopped.
	loadLimit = 20000
)

// TestNoRequestIsLostWhenReplicasAreReplaced replaces both replicas in sequence while the test creates pods. Every pod must
// be mutated, and no pod may be denied.
func TestNoRequestIsLostWhenReplicasAreReplaced(t *testing.T) {
	ring.Second(t, "a load and three rollouts")
	t.Parallel()
	suite.Alone(t)
	for _, test := range []struct {
		name, protocol string
		service        bool
		flags          []string
	}{
		{"HTTP2", "h2", false, []string{"--disable-http2-serving=false"}},
		{"HTTP1", "", false, nil},
		// The API server uses only HTTP/1.1 for webhooks with a Service.
		{"Service", "", true, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := suite.Lend(t)
			proxy := e2e.StartProxy(t)
			o := behind(proxy, alwaysPull(append(test.flags, "--failure-policy=Fail", "--shutdown-delay-duration=5s", "--shutdown-connections-duration=20s")...))
			o.Service = test.service
			b := startBalancer(t, proxy)
			first, second := b.startTwo(t, c, o)
			for _, p := range []*e2e.Postern{first, second} {
				if got := protocolOf(t, p); got != test.protocol {
					t.Fatalf("The replica speaks %q to those who can speak h2, want %q", got, test.protocol)
				}
			}
			awaitCalled(t, c)

			l := startLoad(t, c)
			l.awaitMore(t, 50)
			first.Stop(t)
			third := c.LaunchPostern(t, o)
			b.add(third)
			third.AwaitReady(t)
			l.awaitMore(t, 50)
			second.Stop(t)
			l.awaitMore(t, 50)
			l.stop(t)
		})
	}
}

// protocolOf returns the protocol that the replica selects when the client offers HTTP/2.
func protocolOf(t *testing.T, p *e2e.Postern) string {
	t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
	conn, err := dialer.DialContext(t.Context(), "tcp", p.Addr())
	if err != nil {
		// A server that supports none of the offered protocols also returns this error.
		return ""
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().NegotiatedProtocol
}

// balancer simulates the kubelet and kube-proxy. It probes the readiness of the replicas, and forwards new connections
// only to ready replicas.
type balancer struct {
	proxy *e2e.Proxy

	mu       sync.Mutex
	replicas []*e2e.Postern
}

func startBalancer(t *testing.T, proxy *e2e.Proxy) *balancer {
	t.Helper()
	b := &balancer{proxy: proxy}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			b.forward(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return b
}

func (b *balancer) add(replicas ...*e2e.Postern) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas = append(b.replicas, replicas...)
}

// startTwo starts two replicas, and waits until both are ready and have registered.
func (b *balancer) startTwo(t *testing.T, c *e2e.Cluster, o e2e.Options) (first, second *e2e.Postern) {
	t.Helper()
	first, second = c.LaunchPostern(t, o), c.LaunchPostern(t, o)
	b.add(first, second)
	for _, p := range []*e2e.Postern{first, second} {
		p.AwaitReady(t)
		p.AwaitRegistered(t)
	}
	return first, second
}

// remove makes the balancer forget a replica. When remove returns, no new connection goes to the replica.
func (b *balancer) remove(ctx context.Context, p *e2e.Postern) {
	b.mu.Lock()
	b.replicas = slices.DeleteFunc(b.replicas, func(o *e2e.Postern) bool { return o == p })
	b.mu.Unlock()
	b.forward(ctx)
}

// forward makes the ready replicas the backends of the proxy.
func (b *balancer) forward(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, p := range b.replicas {
		if p.Ready(ctx) == nil {
			out = append(out, p.Addr())
		}
	}
	b.proxy.To(out...)
}

// load creates pods until it is stopped.
type load struct {
	c         *e2e.Cluster
	namespace string
	clients   sync.WaitGroup
	stopped   atomic.Bool
	created   atomic.Int64
}

func startLoad(t *testing.T, c *e2e.Cluster) *load {
	t.Helper()
	l := &load{c: c, namespace: c.Namespace(t)}
	var next atomic.Int64
	for range loadClients {
		l.clients.Go(func() {
			for i := next.Add(1); i <= loadLimit && !l.stopped.Load(); i = next.Add(1) {
				name := fmt.Sprintf("pod-%d", i)
				got, err := c.Admin.CoreV1().Pods(l.namespace).Create(t.Context(), pod(name), metav1.CreateOptions{})
				if err := pullsAlways(got, err); err != nil {
					t.Errorf("Creating %s: %v", name, err)
					return
				}
				l.created.Add(1)
				time.Sleep(loadPause)
			}
		})
	}
	t.Cleanup(func() { l.stopped.Store(true); l.clients.Wait() })
	return l
}

// awaitMore waits until n more pods have been created.
func (l *load) awaitMore(t *testing.T, n int64) {
	t.Helper()
	want := l.created.Load() + n
	e2e.Eventually(t, time.Minute, fmt.Sprintf("%d more pods are created", n), func(context.Context) error {
		if t.Failed() {
			t.FailNow()
		}
		if got := l.created.Load(); got < want {
			return fmt.Errorf("there are %d of %d", got, want)
		}
		return nil
	})
}

// stop stops the load and checks the stored pods.
func (l *load) stop(t *testing.T) {
	t.Helper()
	l.stopped.Store(true)
	l.clients.Wait()
	list, err := l.c.Admin.CoreV1().Pods(l.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("Listing pods: %v", err)
	}
	if got, want := int64(len(list.Items)), l.created.Load(); got != want {
		t.Errorf("There are %d pods, want the %d that were created", got, want)
	}
	for i := range list.Items {
		if err := pullsAlways(&list.Items[i], nil); err != nil {
			t.Errorf("The stored %s: %v", list.Items[i].Name, err)
		}
	}
	t.Logf("%d pods were created", l.created.Load())
}
