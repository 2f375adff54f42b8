package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/postern-dev/postern/internal/ring"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

const (
	fleetClients  = 16
	fleetAttempts = 2000
	fleetCPUs     = 500
	fleetDeleted  = 150
	// fleetBound is the maximum time until the clusters have returned what others want, and until the entries of a killed
	// Postern have ended.
	fleetBound = 2 * time.Minute
	// fleetPause is the pause of a client while the hub is stopped, so that most attempts come before and after that.
	fleetPause = 300 * time.Millisecond
)

var mpiJobs = schema.GroupVersionResource{Group: "kubeflow.org", Version: "v2beta1", Resource: "mpijobs"}

// fleet is a hub and two clusters.
type fleet struct {
	// whole is the test at whose end the processes are stopped.
	whole    *testing.T
	hub      *e2e.Cluster
	network  *e2e.Proxy
	clusters []*member
	attempts atomic.Int64
	// slow makes clients wait between attempts. away is the number of denials that say that the hub does not answer.
	slow atomic.Bool
	away atomic.Int64
}

// member is a cluster of a fleet, with two replicas of Postern.
type member struct {
	*e2e.Cluster
	name, namespace string
	dynamic         dynamic.Interface
	options         e2e.Options
	balancer        *balancer
	replicas        []*e2e.Postern
}

// TestFleetQuota runs a hub and two clusters, each with two replicas of Postern and with many clients.
func TestFleetQuota(t *testing.T) {
	ring.Second(t, "16 clients keep the processors busy")
	t.Parallel()
	suite.Alone(t)
	f := startFleet(t, "east", "west")
	t.Run("exactly the limit, while the hub is stopped and a Postern is killed", f.fill)
	t.Run("kubectl", f.columns)
	t.Run("exactly what was deleted", f.refill)
	t.Run("a dry run claims nothing", f.dryRun)
	t.Run("an administrator takes an allowance back", f.reclaim)
}

// TestFleetQuotaIsEnforced fills the limit with one workload, and empties it.
func TestFleetQuotaIsEnforced(t *testing.T) {
	ring.Second(t, "beside busy processors it failed once in 35 runs, for a reason that is not known yet")
	t.Parallel()
	f := startFleet(t, "east")
	east := f.clusters[0]
	create := func(cpus int, suffix string) func(context.Context) error {
		return func(ctx context.Context) error {
			return east.create(ctx, "Deployment", cpus, suffix, metav1.CreateOptions{})
		}
	}
	e2e.Eventually(t, fleetBound, "a workload takes the whole limit", create(fleetCPUs, "whole"))
	for _, kind := range []string{"Deployment", "MPIJob"} {
		if err := east.create(t.Context(), kind, 2, "beyond", metav1.CreateOptions{}); !isOverFleetQuota(err) {
			t.Errorf("A %s beyond the limit: got %v, want a denial", kind, err)
		}
	}
	if got := f.stored(t); got != fleetCPUs {
		t.Errorf("%d CPUs are used, want %d", got, fleetCPUs)
	}
	if err := east.Admin.AppsV1().Deployments(east.namespace).Delete(t.Context(), fmt.Sprintf("w-%d-whole", fleetCPUs), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, fleetBound, "what was deleted is available", create(2, "after"))
	// A creation of the same name is charged, because the API server finds out later that there is one.
	if err := create(2, "after")(t.Context()); !apierrors.IsAlreadyExists(err) {
		t.Errorf("The same name again: got %v, want that it exists", err)
	}
	if n, err := east.pending(t.Context()); err != nil || n == 0 {
		t.Errorf("Got %d entries and the error %v, want that of the request that stored nothing", n, err)
	}
	e2e.Eventually(t, fleetBound, "the entry of the request that stored nothing ends", func(ctx context.Context) error {
		if n, err := east.pending(ctx); err != nil || n > 0 {
			return fmt.Errorf("got %d entries: %w", n, err)
		}
		return nil
	})
}

// pending returns the number of entries in the account of the cluster.
func (m *member) pending(ctx context.Context) (int, error) {
	account, err := m.dynamic.Resource(quotav1alpha1.Allowances()).Get(ctx, "cpus", metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	entries, _, err := unstructured.NestedSlice(account.Object, "status", "pending")
	return len(entries), err
}

// startFleet starts a hub and clusters of these names.
func startFleet(t *testing.T, names ...string) *fleet {
	t.Helper()
	o := controlplane.Options{APIServerFlags: []string{"--request-timeout=10s"}}
	f := &fleet{whole: t, hub: suite.Start(t, o)}
	f.network = e2e.StartProxy(t, strings.TrimPrefix(f.hub.URL(), "https://"))
	applyManifest(t, f.hub, filepath.Join("testdata", "fleet", "hub-role.yaml"))
	quotas := f.hub.Dynamic(t, controlplane.Admin).Resource(fleetQuotas())
	if _, err := quotas.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "quota.postern.dev/v1alpha1", "kind": "FleetQuota", "metadata": map[string]any{"name": "cpus"},
		"spec": map[string]any{
			"hard":       map[string]any{"requests.cpu": strconv.Itoa(fleetCPUs)},
			"clusters":   map[string]any{"matchLabels": map[string]any{"stage": "test"}},
			"namespaces": map[string]any{"matchLabels": map[string]any{"fleet": "yes"}},
		},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Creating a FleetQuota: %v", err)
	}
	for _, name := range names {
		f.clusters = append(f.clusters, f.startMember(t, name, o))
	}
	for _, m := range f.clusters {
		m.awaitQuota(t)
	}
	return f
}

func fleetQuotas() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "quota.postern.dev", Version: "v1alpha1", Resource: "fleetquotas"}
}

func (f *fleet) startMember(t *testing.T, name string, o controlplane.Options) *member {
	t.Helper()
	m := &member{Cluster: suite.Start(t, o), name: name, namespace: "fleet"}
	m.dynamic = m.Dynamic(t, controlplane.Admin)
	for _, file := range []string{"mpijobs.yaml", "cluster-role.yaml"} {
		applyManifest(t, m.Cluster, filepath.Join("testdata", "fleet", file))
	}
	if _, err := m.Admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: m.namespace, Labels: map[string]string{"fleet": "yes"},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: FleetQuota
  configuration:
    hub: {kubeConfigFile: %q}
    cluster: {name: %s, labels: {stage: test}}
    syncInterval: 500ms
    reportInterval: 2s
    requestTimeout: 15s
    workloads:
    - group: kubeflow.org
      version: v2beta1
      resource: mpijobs
      kind: MPIJob
      pods: [{path: spec.mpiReplicaSpecs.*, replicas: [replicas], template: template}]
`, f.hub.PosternKubeconfig(t, "https://"+f.network.Addr()), name), 0o600); err != nil {
		t.Fatal(err)
	}
	proxy := e2e.StartProxy(t)
	m.balancer = startBalancer(t, proxy)
	m.options = behind(proxy, e2e.Options{Plugins: []string{"FleetQuota"}, Flags: []string{"--admission-control-config-file=" + config}})
	for range 2 {
		m.replicas = append(m.replicas, m.LaunchPostern(t, m.options))
	}
	m.balancer.add(m.replicas...)
	for _, p := range m.replicas {
		p.AwaitReady(t)
		p.AwaitRegistered(t)
	}
	return m
}

// applyManifest applies a manifest as an administrator.
func applyManifest(t *testing.T, c *e2e.Cluster, file string) {
	t.Helper()
	if out, err := c.Kubectl(t.Context(), controlplane.Admin, "apply", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("Applying %s: %v: %s", file, err, out)
	}
}

func (m *member) jobs() dynamic.NamespaceableResourceInterface { return m.dynamic.Resource(mpiJobs) }

// awaitQuota waits until every replica denies what exceeds the limit.
func (m *member) awaitQuota(t *testing.T) {
	t.Helper()
	e2e.Eventually(t, fleetBound, "cluster "+m.name+" enforces the quota", func(ctx context.Context) error {
		for range 6 {
			err := m.create(ctx, "Deployment", fleetCPUs+1, "probe", metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if !isOverFleetQuota(err) {
				return fmt.Errorf("got %w", err)
			}
		}
		return nil
	})
}

// create creates a workload of so many CPUs. Its name says how many.
func (m *member) create(ctx context.Context, kind string, cpus int, suffix string, o metav1.CreateOptions) error {
	name := fmt.Sprintf("w-%d-%s", cpus, suffix)
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "w"}}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", Image: "w", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}}},
	}}
	if kind == "Deployment" {
		replicas := int32(cpus)
		_, err := m.Admin.AppsV1().Deployments(m.namespace).Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
		}, o)
		return err
	}
	group := func(replicas int) map[string]any {
		return map[string]any{"replicas": int64(replicas), "template": map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": "main", "image": "w", "resources": map[string]any{"requests": map[string]any{"cpu": "1"}}},
		}}}}
	}
	_, err := m.jobs().Namespace(m.namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": mpiJobs.GroupVersion().String(), "kind": "MPIJob", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"mpiReplicaSpecs": map[string]any{"Launcher": group(1), "Worker": group(cpus - 1)}},
	}}, o)
	return err
}

func isOverFleetQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded fleet quota: cpus, requested: requests.cpu=")
}

// isLost reports whether the API server could not ask a Postern, because it was killed.
func isLost(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}

// try attempts to create n workloads with many clients. At some of the attempts it calls a func.
func (f *fleet) try(t *testing.T, n int64, largest int, at map[int64]func()) {
	t.Helper()
	var clients sync.WaitGroup
	var begun atomic.Int64
	for range fleetClients {
		clients.Go(func() {
			for i := begun.Add(1); i <= n; i = begun.Add(1) {
				if do := at[i]; do != nil {
					do()
				}
				if f.slow.Load() {
					time.Sleep(fleetPause)
				}
				m := f.clusters[rand.IntN(len(f.clusters))]
				kind, cpus := "Deployment", 1+rand.IntN(largest)
				if rand.IntN(2) == 0 && cpus > 1 {
					kind = "MPIJob"
				}
				err := m.create(t.Context(), kind, cpus, strconv.FormatInt(f.attempts.Add(1), 10), metav1.CreateOptions{})
				if isOverFleetQuota(err) && strings.Contains(err.Error(), "the hub has not answered since") {
					f.away.Add(1)
				}
				if err != nil && !isOverFleetQuota(err) && !isLost(err) {
					t.Errorf("Creating a workload: %v", err)
					return
				}
			}
		})
	}
	clients.Wait()
}

// stored returns the CPUs of all workloads.
func (f *fleet) stored(t *testing.T) int {
	t.Helper()
	sum := 0
	for _, m := range f.clusters {
		for _, name := range m.names(t) {
			sum += cpusOf(name)
		}
	}
	return sum
}

func cpusOf(name string) int {
	parts := strings.Split(name, "-")
	if len(parts) != 3 || parts[0] != "w" {
		return 0
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil {
		return 0
	}
	return n
}

func (m *member) names(t *testing.T) []string {
	t.Helper()
	deployments, err := m.Admin.AppsV1().Deployments(m.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range deployments.Items {
		out = append(out, deployments.Items[i].Name)
	}
	jobs, err := m.jobs().Namespace(m.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs.Items {
		out = append(out, jobs.Items[i].GetName())
	}
	return out
}

// fill fills the quota. In the middle of it the network of the hub fails, the API server of the hub is stopped and
// started, a Postern is killed, and a new one starts while there is no hub.
func (f *fleet) fill(t *testing.T) {
	east := f.clusters[0]
	start := time.Now()
	f.try(t, fleetAttempts, 4, map[int64]func(){
		20: func() { f.network.Cut() },
		50: func() {
			time.Sleep(2 * time.Second)
			f.network.To(strings.TrimPrefix(f.hub.URL(), "https://"))
		},
		80: func() {
			f.slow.Store(true)
			if err := f.hub.StopAPIServer(); err != nil {
				t.Errorf("Stopping the hub: %v", err)
			}
			east.replicas[0].Kill()
			fresh := east.LaunchPostern(f.whole, east.options)
			east.balancer.add(fresh)
			fresh.AwaitReady(f.whole)
			f.away.Store(0)
			time.Sleep(3 * fleetPause)
			if f.away.Load() == 0 {
				t.Error("No denial says that the hub does not answer")
			}
			// Like a load balancer, the proxy sends requests only to an API server that is ready. A new one has no roles yet.
			f.network.Cut()
			if err := f.hub.StartAPIServer(t.Context()); err != nil {
				t.Errorf("Starting the hub: %v", err)
			}
			f.network.To(strings.TrimPrefix(f.hub.URL(), "https://"))
			f.slow.Store(false)
		},
	})
	if got := f.attempts.Load(); got < fleetAttempts {
		t.Errorf("Made %d attempts, want %d", got, fleetAttempts)
	}
	t.Logf("%d attempts took %.1f s, and %d CPUs are used", fleetAttempts, time.Since(start).Seconds(), f.stored(t))
	f.complete(t)
	f.replay(t)
}

// complete tries small workloads until the limit is reached exactly, and then some more.
func (f *fleet) complete(t *testing.T) {
	t.Helper()
	start := time.Now()
	e2e.Eventually(t, fleetBound, "the limit is used", func(context.Context) error {
		f.try(t, fleetClients, 1, nil)
		if got := f.stored(t); got != fleetCPUs {
			return fmt.Errorf("%d of %d CPUs are used", got, fleetCPUs)
		}
		return nil
	})
	t.Logf("The limit was used exactly after another %.1f s", time.Since(start).Seconds())
	f.try(t, 100, 2, nil)
	if got := f.stored(t); got != fleetCPUs {
		t.Errorf("%d CPUs are used, want exactly the %d of the limit", got, fleetCPUs)
	}
}

// replay adds up what the audit logs of the clusters show, and fails if the sum was ever above the limit.
func (f *fleet) replay(t *testing.T) {
	t.Helper()
	var events []e2e.AuditEvent
	for _, m := range f.clusters {
		events = append(events, m.Audit(t, func(e e2e.AuditEvent) bool {
			return e.ObjectRef.Namespace == m.namespace && (e.ObjectRef.Resource == "deployments" || e.ObjectRef.Resource == "mpijobs") &&
				e.ObjectRef.Subresource == "" && e.ResponseStatus.Code < 300 && cpusOf(e.ObjectRef.Name) > 0 && !strings.HasSuffix(e.ObjectRef.Name, "-probe")
		})...)
	}
	slices.SortStableFunc(events, func(a, b e2e.AuditEvent) int { return a.StageTimestamp.Compare(b.StageTimestamp) })
	sum, highest := 0, 0
	for _, e := range events {
		switch e.Verb {
		case "create":
			sum += cpusOf(e.ObjectRef.Name)
		case "delete":
			sum -= cpusOf(e.ObjectRef.Name)
		}
		highest = max(highest, sum)
	}
	if highest > fleetCPUs || sum != f.stored(t) {
		t.Errorf("According to the audit logs up to %d CPUs were used, and %d in the end, want at most %d and %d", highest, sum, fleetCPUs, f.stored(t))
	}
	t.Logf("%d events, up to %d CPUs", len(events), highest)
}

// columns checks what kubectl shows.
func (f *fleet) columns(t *testing.T) {
	e2e.Eventually(t, fleetBound, "kubectl get fleetquota", func(ctx context.Context) error {
		out, err := f.hub.Kubectl(ctx, controlplane.Admin, "get", "fleetquota").CombinedOutput()
		lines := strings.Split(string(out), "\n")
		if err != nil || len(lines) < 2 || !slices.Equal(strings.Fields(lines[0]), []string{"NAME", "LIMIT", "USED", "CLAIMED", "AGE"}) ||
			!slices.Equal(strings.Fields(lines[1])[:4], []string{"cpus", "requests.cpu=500", "requests.cpu=500", "requests.cpu=500"}) {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// refill deletes workloads and fills the quota again.
func (f *fleet) refill(t *testing.T) {
	deleted := 0
	for deleted < fleetDeleted {
		for _, m := range f.clusters {
			name := m.names(t)[0]
			err := m.Admin.AppsV1().Deployments(m.namespace).Delete(t.Context(), name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				err = m.jobs().Namespace(m.namespace).Delete(t.Context(), name, metav1.DeleteOptions{})
			}
			if err != nil {
				t.Fatalf("Deleting %s: %v", name, err)
			}
			deleted += cpusOf(name)
		}
	}
	if got := f.stored(t); got != fleetCPUs-deleted {
		t.Errorf("%d CPUs are used after %d were deleted", got, deleted)
	}
	f.complete(t)
	f.replay(t)
}

// dryRun checks that a dry run beyond the limit is denied, and that no dry run changes the accounts.
func (f *fleet) dryRun(t *testing.T) {
	for _, m := range f.clusters {
		if err := m.create(t.Context(), "MPIJob", 2, "probe", metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); !isOverFleetQuota(err) {
			t.Errorf("A dry run beyond the limit returned %v, want a denial", err)
		}
	}
	if got := f.stored(t); got != fleetCPUs {
		t.Errorf("%d CPUs are used, want %d", got, fleetCPUs)
	}
}

// reclaim takes the allowance of a cluster back, first while it is alive.
func (f *fleet) reclaim(t *testing.T) {
	west := f.clusters[1]
	args := []string{"fleetquota", "reclaim", "--kubeconfig", f.hub.Kubeconfig(controlplane.Admin), "--quota=cpus", "--cluster=west"}
	if code, out := f.hub.RunPostern(t, args...); code != 2 || !strings.Contains(out, "cluster west is alive") {
		t.Errorf("Taking back the allowance of a cluster that is alive returned %d: %s", code, out)
	}
	for _, p := range west.replicas {
		p.Stop(t)
	}
	code, out := f.hub.RunPostern(t, args...)
	if code != 0 || !strings.Contains(out, "took back requests.cpu=") {
		t.Fatalf("Taking back the allowance of a cluster that is gone returned %d: %s", code, out)
	}
	east := f.clusters[0]
	e2e.Eventually(t, fleetBound, "the other cluster uses it", func(ctx context.Context) error {
		return east.create(ctx, "Deployment", 2, "reclaimed", metav1.CreateOptions{})
	})
}
