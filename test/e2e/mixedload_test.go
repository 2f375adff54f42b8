package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/test/e2e"
)

// mixedLoad creates pods and claims at a fixed rate, as dry runs, until it is stopped. Both kinds belong to different
// families. A dry run passes through admission like any other request, and fills no storage.
type mixedLoad struct {
	client    kubernetes.Interface
	namespace string
	// check returns an error if a pod is not as it must be.
	check   func(*corev1.Pod, error) error
	limiter *rate.Limiter
	stopped atomic.Bool
	clients sync.WaitGroup
	created atomic.Int64
	started time.Time

	mu    sync.Mutex
	lost  []lostRequest
	kills []span
}

// span is a period of time.
type span struct{ from, to time.Time }

// lostRequest is a creation that failed.
type lostRequest struct {
	span

	name string
	err  error
}

// startMixedLoad starts a load of n creations a second, which ends after limit creations at the latest.
func startMixedLoad(t *testing.T, c *e2e.Cluster, n int, limit int64, check func(*corev1.Pod, error) error) *mixedLoad {
	t.Helper()
	return startMixedLoadBy(t, c.Admin, c.Namespace(t), n, limit, check)
}

// startMixedLoadBy is startMixedLoad with a client of the caller.
func startMixedLoadBy(t *testing.T, client kubernetes.Interface, namespace string, n int, limit int64, check func(*corev1.Pod, error) error) *mixedLoad {
	t.Helper()
	l := &mixedLoad{client: client, namespace: namespace, check: check, limiter: rate.NewLimiter(rate.Limit(n), 1), started: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	var next atomic.Int64
	for range 2 * loadClients {
		l.clients.Go(func() {
			for i := next.Add(1); i <= limit && !l.stopped.Load() && l.limiter.Wait(ctx) == nil; i = next.Add(1) {
				l.create(ctx, i)
			}
		})
	}
	t.Cleanup(func() { l.stopped.Store(true); cancel(); l.clients.Wait() })
	return l
}

// isCreated is a check of a load whose pods may or may not be mutated.
func isCreated(_ *corev1.Pod, err error) error { return err }

func (l *mixedLoad) create(ctx context.Context, i int64) {
	name, from := fmt.Sprintf("pod-%d", i), time.Now()
	var err error
	if i%4 == 0 {
		name = fmt.Sprintf("claim-%d", i)
		_, err = l.client.CoreV1().PersistentVolumeClaims(l.namespace).Create(ctx, claim(name), dryRun())
	} else {
		err = l.check(l.client.CoreV1().Pods(l.namespace).Create(ctx, pod(name), dryRun()))
	}
	switch {
	case err == nil:
		l.created.Add(1)
	case errors.Is(err, context.Canceled):
	default:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lost = append(l.lost, lostRequest{span{from, time.Now()}, name, err})
	}
}

// endsNoticed is how long the proxy and the API server may take to notice that the connections of a killed replica are
// closed. Until then the API server sends requests on them.
const endsNoticed = time.Second

// kill kills a replica. The requests that are in flight meanwhile, or that are sent on its connections afterwards, may
// be lost.
func (l *mixedLoad) kill(p *e2e.Postern) {
	from := time.Now()
	p.Kill()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kills = append(l.kills, span{from, time.Now().Add(endsNoticed)})
}

// awaitMore waits until n more objects have been created.
func (l *mixedLoad) awaitMore(t *testing.T, n int64) {
	t.Helper()
	want := l.created.Load() + n
	e2e.Eventually(t, 2*time.Minute, fmt.Sprintf("%d more objects are created", n), func(context.Context) error {
		if got := l.created.Load(); got < want {
			return fmt.Errorf("there are %d of %d", got, want)
		}
		return nil
	})
	l.checkLost(t)
}

// checkLost fails the test if a creation failed that was not in flight at a kill.
func (l *mixedLoad) checkLost(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lost := range l.lost {
		if !l.inFlightAtAKill(lost) {
			t.Errorf("Creating %s, %v after the start: %v", lost.name, lost.from.Sub(l.started).Round(time.Millisecond), lost.err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// inFlightAtAKill reports whether the request ran while a replica was killed, and failed because of that. The caller
// holds the lock.
func (l *mixedLoad) inFlightAtAKill(lost lostRequest) bool {
	for _, kill := range l.kills {
		if lost.from.Before(kill.to) && lost.to.After(kill.from) && strings.Contains(lost.err.Error(), "failed calling webhook") {
			return true
		}
	}
	return false
}

// stop ends the load and reports what was lost at kills.
func (l *mixedLoad) stop(t *testing.T) {
	t.Helper()
	l.stopped.Store(true)
	l.clients.Wait()
	l.checkLost(t)
	took := time.Since(l.started)
	t.Logf("%d objects were created in %v, %.0f in a second", l.created.Load(), took.Round(time.Second), float64(l.created.Load())/took.Seconds())
	for _, lost := range l.lost {
		t.Logf("In flight at a kill: %s: %v", lost.name, lost.err)
	}
	if len(l.kills) > 0 {
		t.Logf("%d requests were in flight at %d kills", len(l.lost), len(l.kills))
	}
}

// TestNoRequestIsLostWhenAFamilyIsAdded is a rolling replacement that adds families to those which are registered. The
// old replicas serve the paths of these families, and admit.
func TestNoRequestIsLostWhenAFamilyIsAdded(t *testing.T) {
	ring.Second(t, "a rollout under load")
	t.Parallel()
	suite.Alone(t)
	c := suite.Lend(t)
	proxy := e2e.StartProxy(t)
	o := behind(proxy, alwaysPull("--failure-policy=Fail", "--shutdown-delay-duration=2s", "--shutdown-connections-duration=20s"))
	o.Service = true
	b := startBalancer(t, proxy)
	old := []*e2e.Postern{c.LaunchPostern(t, o), c.LaunchPostern(t, o)}
	b.add(old...)
	for _, p := range old {
		p.AwaitReady(t)
		p.AwaitRegistered(t)
	}
	awaitCalled(t, c)
	l := startMixedLoad(t, c, 60, 20000, pullsAlways)
	l.awaitMore(t, 50)
	o.Plugins = append(o.Plugins, "DefaultStorageClass", "StorageObjectInUseProtection", "DenyServiceExternalIPs", "LimitRanger")
	for _, p := range old {
		newer := c.LaunchPostern(t, o)
		b.add(newer)
		newer.AwaitReady(t)
		newer.AwaitRegistered(t)
		l.awaitMore(t, 100)
		p.Stop(t)
		l.awaitMore(t, 50)
	}
	l.stop(t)
	if _, err := c.Admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), "postern-storage", metav1.GetOptions{}); err != nil {
		t.Errorf("The family that was added is not registered: %v", err)
	}
}

// TestNoRequestIsLostWhenAPluginIsAddedAndRemoved is two rolling replacements of processes: one adds a plugin that mutates and
// validates to a family that is registered, and one removes it. A pod that a replica without the plugin left unchanged
// must not be denied by a replica with the plugin.
func TestNoRequestIsLostWhenAPluginIsAddedAndRemoved(t *testing.T) {
	ring.Second(t, "two rollouts under load")
	t.Parallel()
	suite.Alone(t)
	c := suite.Lend(t)
	proxy := e2e.StartProxy(t)
	without := behind(proxy, e2e.Options{Plugins: []string{"PodNodeSelector"}, Flags: []string{"--failure-policy=Fail", "--shutdown-delay-duration=2s", "--shutdown-connections-duration=20s"}})
	without.Service = true
	with := without
	with.Plugins = []string{"PodNodeSelector", "AlwaysPullImages"}
	b := startBalancer(t, proxy)
	running := []*e2e.Postern{c.LaunchPostern(t, without), c.LaunchPostern(t, without)}
	b.add(running...)
	for _, p := range running {
		p.AwaitReady(t)
		p.AwaitRegistered(t)
	}
	l := startMixedLoad(t, c, 60, 40000, isCreated)
	l.awaitMore(t, 50)
	for _, next := range []e2e.Options{with, without} {
		for i, p := range running {
			running[i] = c.LaunchPostern(t, next)
			b.add(running[i])
			running[i].AwaitReady(t)
			running[i].AwaitRegistered(t)
			l.awaitMore(t, 200)
			p.Stop(t)
			l.awaitMore(t, 50)
		}
	}
	l.stop(t)
}

// deniesLaterChanges checks that a webhook that is called after Postern cannot lower the image pull policy. It returns the
// namespace of that webhook, where every pod lacks the change of AlwaysPullImages.
func deniesLaterChanges(t *testing.T, c *e2e.Cluster) string {
	t.Helper()
	ns := c.Namespace(t)
	lower := e2e.StartWebhook(t, `[{"op": "replace", "path": "/spec/containers/0/imagePullPolicy", "value": "IfNotPresent"}]`)
	c.Register(t, lower, "zz-lower", ns, admissionregistrationv1.IfNeededReinvocationPolicy)
	e2e.Eventually(t, settleBound, "the pod is denied", func(ctx context.Context) error {
		if _, err := c.Admin.CoreV1().Pods(ns).Create(ctx, pod("web"), dryRun()); !apierrors.IsForbidden(err) {
			return errors.Join(errors.New("it is not denied"), err)
		}
		return nil
	})
	return ns
}
