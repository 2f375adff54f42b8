package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/pkg/registration"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

const (
	// serverLateness is how much later one of two API servers learns of all changes, also of those of the webhooks. It must be less
	// than 3 s, see StartLateWatches.
	serverLateness = time.Second
	// watchLateness is how much later still the watches of a replica learn of them.
	watchLateness = 9 * time.Second
	// changedBound is longer than an added family waits after the last replica that may not serve it. One that is removed goes at once.
	changedBound = 3 * time.Minute
)

// TestLateAPIServer has two API servers, of which one learns of all changes late. Half of the replicas use it, and their watches are
// even later. A rollout adds families and plugins, and another removes them. No creation through either API server may fail, and none
// may miss a plugin of all replicas. No replica has a canary: their Services would have the same address.
func TestLateAPIServer(t *testing.T) {
	ring.Second(t, "two rollouts under load, with a second API server")
	t.Parallel()
	l := startLate(t)
	ns := selecting(t, l.Cluster)
	few, network := []string{"PodNodeSelector"}, "DenyServiceExternalIPs"
	many := append(slices.Clone(few), "AlwaysPullImages", "DefaultStorageClass", network)
	names := l.pods(t, 1)
	running := []replicaInPod{l.launch(t, names[0], l.URL(), few), l.launch(t, names[1], l.watches, few)}
	var loads []*mixedLoad
	for _, client := range l.clients {
		e2e.Eventually(t, settleBound, "each API server calls Postern", func(ctx context.Context) error {
			return hasSelector(client.CoreV1().Pods(ns).Create(ctx, pod("called"), dryRun()))
		})
		loads = append(loads, startMixedLoadBy(t, client, ns, 20, 20_000, hasSelector))
	}
	more := func(n int64) {
		for _, load := range loads {
			load.awaitMore(t, n)
		}
	}
	for i, plugins := range [][]string{many, few} {
		names := l.pods(t, i+2)
		for j, server := range []string{l.watches, l.URL()} {
			next := l.launch(t, names[j], server, plugins)
			more(100)
			running[j].end(t, l.Cluster)
			running[j] = next
		}
		start := time.Now()
		want := []string{"postern-pods", "postern-pods"}
		if slices.Contains(plugins, network) {
			// Replicas that may not serve a family have only just gone.
			if err := knows(t.Context(), l.Admin, want); err != nil {
				t.Error(err)
			}
			want = append(want, "postern-network", "postern-storage")
		}
		for _, client := range l.clients {
			e2e.Eventually(t, changedBound, fmt.Sprintf("each API server knows the families of %q", plugins), func(ctx context.Context) error {
				return knows(ctx, client, want)
			})
		}
		t.Logf("The families of %q were registered %s after the rollout", plugins, time.Since(start).Round(time.Second))
		if slices.Contains(plugins, network) {
			deniesLaterChanges(t, l.Cluster)
			for _, client := range l.clients {
				e2e.Eventually(t, settleBound, "the plugins that were added decide", func(ctx context.Context) error {
					return errors.Join(
						pullsAlways(client.CoreV1().Pods(ns).Create(ctx, pod("always"), dryRun())),
						isServiceForbidden(client.CoreV1().Services(ns).Create(ctx, withExternalIP(), dryRun())))
				})
			}
		}
		more(100)
	}
	for _, load := range loads {
		load.stop(t)
	}
}

// late is a cluster with a second API server that learns of all changes late.
type late struct {
	*e2e.Cluster

	// watches is the URL of a proxy in front of the second API server whose watches are even later. It is for Postern.
	watches string
	// clients are of the first and of the second API server.
	clients  []kubernetes.Interface
	proxy    *e2e.Proxy
	balancer *balancer
}

func startLate(t *testing.T) *late {
	t.Helper()
	c := suite.Start(t, controlplane.Options{})
	second, stop, err := c.AddAPIServer(t.Context(), e2e.StartLateWatches(t, c.EtcdURL(), e2e.GRPCTransport(t), serverLateness))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	config := c.Config(t, controlplane.Admin)
	config.Host = second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	config, err = clientcmd.BuildConfigFromFlags("", c.PosternKubeconfig(t, second))
	if err != nil {
		t.Fatal(err)
	}
	// A kubeconfig has no credentials for a URL without TLS.
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	proxy := e2e.StartProxy(t)
	return &late{
		Cluster: c, watches: e2e.StartLateWatches(t, second, transport, watchLateness),
		clients: []kubernetes.Interface{c.Admin, client}, proxy: proxy, balancer: startBalancer(t, proxy),
	}
}

// pods creates the two pods of a revision, and returns their names.
func (l *late) pods(t *testing.T, revision int) []string {
	t.Helper()
	if revision == 1 {
		deployed(t, l.Cluster, "postern")
	} else {
		revise(t, l.Cluster, "postern", revision)
	}
	set, err := l.Admin.AppsV1().ReplicaSets(e2e.PosternNamespace).Get(t.Context(), fmt.Sprintf("postern-%d", revision), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	second := set.Name + "-second"
	inPod(t, l.Cluster, set, second)
	return []string{set.Name, second}
}

// launch starts the process in a pod, and waits until it is ready.
func (l *late) launch(t *testing.T, name, server string, plugins []string) replicaInPod {
	t.Helper()
	o := behind(l.proxy, e2e.Options{
		Plugins: plugins, Service: true, Kubeconfig: l.PosternKubeconfig(t, server), Env: []string{"POD_NAME=" + name},
		Flags: []string{"--failure-policy=Fail", "--shutdown-delay-duration=2s", "--shutdown-connections-duration=20s"},
	})
	r := replicaInPod{l.LaunchPostern(t, o), name}
	l.balancer.add(r.Postern)
	r.AwaitReady(t)
	return r
}

// replicaInPod is the process in a pod.
type replicaInPod struct {
	*e2e.Postern

	pod string
}

// end stops the process and deletes the pod.
func (r replicaInPod) end(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	r.Stop(t)
	if err := c.Admin.CoreV1().Pods(e2e.PosternNamespace).Delete(t.Context(), r.pod, *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
}

// knows returns nil if an API server knows exactly the configurations of Postern with these names, one name for each of both kinds.
func knows(ctx context.Context, client kubernetes.Interface, want []string) error {
	cached := metav1.ListOptions{
		ResourceVersion: "0", // what the API server calls, and not what is stored
		LabelSelector:   registration.ManagedByLabel + "=" + registration.ManagedBy,
	}
	hooks := client.AdmissionregistrationV1()
	mutating, err := hooks.MutatingWebhookConfigurations().List(ctx, cached)
	if err != nil {
		return err
	}
	validating, err := hooks.ValidatingWebhookConfigurations().List(ctx, cached)
	if err != nil {
		return err
	}
	var got []string
	for _, u := range mutating.Items {
		got = append(got, u.Name)
	}
	for _, u := range validating.Items {
		got = append(got, u.Name)
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		return fmt.Errorf("it knows %q, want %q", got, want)
	}
	return nil
}

func isServiceForbidden(_ *corev1.Service, err error) error {
	if !apierrors.IsForbidden(err) {
		return errors.Join(errors.New("it is not forbidden"), err)
	}
	return nil
}

// withExternalIP returns a Service that DenyServiceExternalIPs denies.
func withExternalIP() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "external"},
		Spec:       corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.1"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}
