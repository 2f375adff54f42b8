package e2e_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/postern-dev/postern/internal/ring"
	deletionv1alpha1 "github.com/postern-dev/postern/pkg/apis/deletion/v1alpha1"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

const (
	// gateLabel is the label of pods with a gate. Its value is the name of the gate.
	gateLabel = "example.com/gate"
	// kubeletPeriod is how often the kubelet of the tests looks at pods.
	kubeletPeriod = 100 * time.Millisecond
	// gateBound ends a test that waits for a gate.
	gateBound = 90 * time.Second
	// closedFor is how long a test watches that a closed gate holds.
	closedFor = 2 * time.Second
)

// gateConfiguration has a gate of each kind. The placeholders are the URL of the backend and the folder of its files.
const gateConfiguration = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: DeletionGate
  configuration:
    gates:
    - name: database
      selector: {matchLabels: {example.com/gate: database}}
      backend: &backend {url: %[1]q, caFile: %[2]s/ca.crt, clientCertificateFile: %[2]s/client.crt, clientKeyFile: %[2]s/client.key, timeoutSeconds: 2}
      retryAfterSeconds: 1
    - name: impatient
      selector: {matchLabels: {example.com/gate: impatient}}
      backend: *backend
      maxWait: 3s
      retryAfterSeconds: 1
    - name: condition
      selector: {matchLabels: {example.com/gate: condition}}
      podCondition: example.com/drained
      retryAfterSeconds: 1
    - name: absent
      selector: {matchLabels: {example.com/gate: absent}}
      backend: {url: "https://127.0.0.1:1", timeoutSeconds: 1}
      maxWait: 5s
      retryAfterSeconds: 1
    - name: absent-open
      selector: {matchLabels: {example.com/gate: absent-open}}
      backend: {url: "https://127.0.0.1:1", timeoutSeconds: 1, failurePolicy: Ignore}
      retryAfterSeconds: 1
`

// gateBackend is the backend of the gates. It requires a client certificate, and starts one preparation for each key.
type gateBackend struct {
	*httptest.Server
	config string

	mu sync.Mutex
	// requests are the requests to prepare, by key. order has the names of the pods.
	requests map[string]int
	order    []string
	// ready has the UIDs of the pods that may go. all lets all go.
	ready map[types.UID]bool
	all   bool
}

func startGateBackend(t *testing.T) *gateBackend {
	t.Helper()
	b := &gateBackend{requests: map[string]int{}, ready: map[types.UID]bool{}}
	client, key := e2e.ClientCertificate(t)
	b.Server = httptest.NewUnstartedServer(b)
	b.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	b.TLS.ClientCAs.AppendCertsFromPEM(client)
	b.StartTLS()
	t.Cleanup(b.Close)
	dir := t.TempDir()
	for name, data := range map[string][]byte{
		"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Certificate().Raw}), "client.crt": client, "client.key": key,
		"admission.yaml": fmt.Appendf(nil, gateConfiguration, b.URL+"/review", dir),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.config = filepath.Join(dir, "admission.yaml")
	return b
}

func (b *gateBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review deletionv1alpha1.DeletionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if review.Request.Action == deletionv1alpha1.Prepare {
		key := r.Header.Get(deletionv1alpha1.KeyHeader)
		if b.requests[key]++; b.requests[key] == 1 {
			b.order = append(b.order, review.Request.Pod.Name)
		}
	}
	review.Response = &deletionv1alpha1.Response{UID: review.Request.UID, Ready: b.all || b.ready[review.Request.UID], Message: "shards are left"}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

func (b *gateBackend) open(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready[uid] = true
}

func (b *gateBackend) openAll(all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = all
}

// prepared returns how often the preparation of a pod was requested.
func (b *gateBackend) prepared(gate string, uid types.UID) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests[gate+"/"+string(uid)]
}

func (b *gateBackend) options() e2e.Options {
	return e2e.Options{Plugins: []string{"DeletionGate"}, Flags: []string{"--admission-control-config-file=" + b.config}}
}

// gates is a cluster with gates, a node and its kubelet.
type gates struct {
	*world
	backend *gateBackend
	// plain is a client of the admin that does not repeat requests by itself.
	plain plainPods
	alice kubernetes.Interface
}

// runKubelet binds the pods of a namespace to the node, runs them, and ends those that are terminating.
func (w *world) runKubelet(t *testing.T, namespace string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			list, err := w.Admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
			for i := 0; err == nil && i < len(list.Items); i++ {
				w.runPod(ctx, &list.Items[i])
			}
			select {
			case <-ctx.Done():
			case <-time.After(kubeletPeriod):
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

// runPod does the next step with a pod. An error is followed by another attempt.
func (w *world) runPod(ctx context.Context, p *corev1.Pod) {
	pods := w.Admin.CoreV1().Pods(p.Namespace)
	switch {
	case p.Labels["example.com/kubelet"] == "none" || p.Spec.NodeName != "" && p.Spec.NodeName != nodeName:
	case p.DeletionTimestamp != nil && p.Spec.NodeName == nodeName:
		_ = w.kubelet.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	case p.Spec.NodeName == "":
		_ = pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}}, metav1.CreateOptions{})
	case p.Status.Phase == corev1.PodPending:
		p = p.DeepCopy()
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		_, _ = pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
	}
}

// plainPods sends requests for pods once.
type plainPods struct {
	client    kubernetes.Interface
	namespace string
}

func (p plainPods) remove(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return p.client.CoreV1().RESTClient().Delete().MaxRetries(0).Namespace(p.namespace).Resource("pods").Name(name).Body(&o).Do(ctx).Error()
}

func (p plainPods) evict(ctx context.Context, name string, o *metav1.DeleteOptions) error {
	return p.client.CoreV1().RESTClient().Post().MaxRetries(0).Namespace(p.namespace).Resource("pods").Name(name).SubResource("eviction").
		Body(&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}, DeleteOptions: o}).Do(ctx).Error()
}

func newGates(t *testing.T, c *e2e.Cluster) *gates {
	t.Helper()
	w := newWorld(t, c)
	g := &gates{world: w, backend: startGateBackend(t), plain: plainPods{c.Admin, w.namespace}, alice: c.Client(t, controlplane.Alice)}
	w.letAliceEdit(t)
	w.runKubelet(t, w.namespace)
	return g
}

// running creates a pod with a gate, on the node, and waits until it runs.
func (g *gates) running(t *testing.T, name, gate string) *corev1.Pod {
	t.Helper()
	p := pod(name)
	p.Labels = map[string]string{gateLabel: gate, "name": name}
	return g.run(t, g.namespace, p)
}

func (g *gates) run(t *testing.T, namespace string, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	pods := g.Admin.CoreV1().Pods(namespace)
	if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Creating the pod %s: %v", p.Name, err)
	}
	var got *corev1.Pod
	e2e.Eventually(t, settleBound, "the pod runs", func(ctx context.Context) (err error) {
		if got, err = pods.Get(ctx, p.Name, metav1.GetOptions{}); err == nil && got.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", got.Status.Phase)
		}
		return err
	})
	return got
}

// is waits until the pod of a UID is gone.
func (g *gates) gone(t *testing.T, p *corev1.Pod) {
	t.Helper()
	e2e.Eventually(t, gateBound, "the pod "+p.Name+" is gone", func(ctx context.Context) error {
		got, err := g.Admin.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && got.UID != p.UID {
			return nil
		}
		return cmp.Or(err, errors.New("it is there"))
	})
}

// isHeld reports an error unless a request was refused with code 429 in these words.
func isHeld(t *testing.T, what string, err error, words string) {
	t.Helper()
	if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: got %v, want code 429 with %q", what, err, words)
	}
}

func passes(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func isForbidden(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "it takes the permission to") {
		t.Errorf("%s: got %v, want a denial", what, err)
	}
}

// awaitGates waits until the API server calls Postern.
func (g *gates) awaitGates(t *testing.T) {
	t.Helper()
	e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
		p := pod("called")
		p.Annotations = map[string]string{deletionv1alpha1.ReleaseAnnotation: "called"}
		if _, err := g.alice.CoreV1().Pods(g.namespace).Create(ctx, p, dryRun()); !apierrors.IsForbidden(err) {
			return cmp.Or(err, errors.New("it does not"))
		}
		return nil
	})
}

// startGates starts a Postern with the gates.
func startGates(t *testing.T) (*gates, *e2e.Postern) {
	t.Helper()
	c := suite.Lend(t)
	g := newGates(t, c)
	p := c.StartPostern(t, g.backend.options())
	g.awaitGates(t)
	return g, p
}

// TestDeletionGate holds pods back, and lets them go.
func TestDeletionGate(t *testing.T) {
	t.Parallel()
	g, _ := startGates(t)
	t.Run("a rolling update of a StatefulSet", g.checkRollingUpdate)
	t.Run("a condition", g.checkCondition)
}

// TestAGateIsNeverATrap deletes pods in the ways that pass a closed gate.
func TestAGateIsNeverATrap(t *testing.T) {
	t.Parallel()
	g, _ := startGates(t)
	g.checkTraps(t)
}

// TestDrainWaitsForAGate drains a node.
func TestDrainWaitsForAGate(t *testing.T) {
	t.Parallel()
	g, _ := startGates(t)
	g.checkDrain(t)
}

// TestNoWayAroundAGate tries to delete pods whose gate is closed.
func TestNoWayAroundAGate(t *testing.T) {
	t.Parallel()
	g, p := startGates(t)
	t.Run("as an editor", g.checkWaysAround)
	t.Run("a pod without room for a record", g.checkFull)
	t.Run("a dry run", g.checkDryRun)
	t.Run("a collection", g.checkCollection)
	t.Run("Postern is away", func(t *testing.T) { g.checkAway(t, p) })
}

// TestPodsOfALostNodePassAGate waits for the garbage collection of kube-controller-manager.
func TestPodsOfALostNodePassAGate(t *testing.T) {
	ring.Second(t, "kube-controller-manager collects pods of a lost node after a minute")
	t.Parallel()
	g, _ := startGates(t)
	g.checkNode(t)
}

// checkRollingUpdate updates a StatefulSet. Each pod waits for its own preparation.
func (g *gates) checkRollingUpdate(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32(3)), ServiceName: "db", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db", gateLabel: "database"}}, Spec: pod("").Spec},
	}}
	sets, pods := g.Admin.AppsV1().StatefulSets(g.namespace), g.Admin.CoreV1().Pods(g.namespace)
	if _, err := sets.Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	rolled := func(ctx context.Context) error {
		s, err := sets.Get(ctx, "db", metav1.GetOptions{})
		if err == nil && (s.Status.ReadyReplicas != 3 || s.Status.UpdateRevision != s.Status.CurrentRevision || s.Status.ObservedGeneration != s.Generation) {
			err = fmt.Errorf("it has %+v", s.Status)
		}
		return err
	}
	e2e.Eventually(t, gateBound, "the StatefulSet runs", rolled)
	before := map[string]*corev1.Pod{}
	for _, name := range []string{"db-0", "db-1", "db-2"} {
		p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		before[name] = p
	}
	if _, err := sets.Patch(t.Context(), "db", types.StrategicMergePatchType, []byte(`{"spec":{"template":{"metadata":{"annotations":{"round":"2"}}}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"db-2", "db-1", "db-0"} {
		old := before[name]
		e2e.Eventually(t, gateBound, "the preparation of "+name+" begins", func(context.Context) error {
			if g.backend.prepared("database", old.UID) == 0 {
				return errors.New("it does not")
			}
			return nil
		})
		e2e.Throughout(t, closedFor, name+" stays", func(ctx context.Context) error {
			if p, err := pods.Get(ctx, name, metav1.GetOptions{}); err != nil || p.UID != old.UID || p.DeletionTimestamp != nil {
				return cmp.Or(err, errors.New("it does not"))
			}
			return nil
		})
		opened := time.Now()
		g.backend.open(old.UID)
		g.gone(t, old)
		t.Logf("%s went %v after its gate had opened", name, time.Since(opened).Round(100*time.Millisecond))
	}
	e2e.Eventually(t, gateBound, "the StatefulSet is updated", rolled)
	for name, p := range before {
		if got := g.backend.prepared("database", p.UID); got != 1 {
			t.Errorf("Got %d preparations of %s, want 1", got, name)
		}
	}
	events, err := g.Admin.CoreV1().Events(g.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(before["db-2"].UID)})
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]bool{}
	for _, e := range events.Items {
		reasons[e.Reason] = true
	}
	// The controller may ask before Postern reports the open gate.
	for _, want := range []string{"DeletionWaiting", "DeletionAllowed"} {
		if !reasons[want] {
			t.Errorf("Got the Events %v, want %s", reasons, want)
		}
	}
	if err := sets.Delete(t.Context(), "db", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}); err != nil {
		t.Error(err)
	}
	g.backend.openAll(true)
	defer g.backend.openAll(false)
	for name := range before {
		if err := g.plain.remove(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// checkDrain drains the node. Other tests have pods on it, too.
func (g *gates) checkDrain(t *testing.T) {
	t.Helper()
	p := g.running(t, "drained", "database")
	drain := []string{"drain", nodeName, "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=name=drained", "--timeout=80s"}
	if out, err := g.Kubectl(t.Context(), controlplane.Admin, append(drain, "--dry-run=server")...).CombinedOutput(); err != nil || g.backend.prepared("database", p.UID) != 0 {
		t.Errorf("A dry run: %v, and %d preparations: %s", err, g.backend.prepared("database", p.UID), out)
	}
	type result struct {
		out []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := g.Kubectl(t.Context(), controlplane.Admin, drain...).CombinedOutput()
		done <- result{out, err}
	}()
	e2e.Eventually(t, gateBound, "the preparation begins", func(context.Context) error {
		if g.backend.prepared("database", p.UID) == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	e2e.Eventually(t, settleBound, "kubectl describe tells the story", func(ctx context.Context) error {
		out, err := g.Kubectl(ctx, controlplane.Admin, "describe", "pod", "drained", "-n", g.namespace).CombinedOutput()
		for _, want := range []string{deletionv1alpha1.WaitingAnnotation, "DeletionWaiting", `The deletion waits: gate "database"`, "shards are left"} {
			if err == nil && !strings.Contains(string(out), want) {
				err = fmt.Errorf("it does not say %q: %s", want, out)
			}
		}
		return err
	})
	select {
	case r := <-done:
		t.Fatalf("kubectl drain did not wait: %v: %s", r.err, r.out)
	case <-time.After(11 * time.Second): // longer than the ten retries of the client library, each after a second
	}
	g.backend.open(p.UID)
	r := <-done
	if r.err != nil || !strings.Contains(string(r.out), "will retry after") || !strings.Contains(string(r.out), "shards are left") {
		t.Errorf("kubectl drain: %v: %s", r.err, r.out)
	}
	g.gone(t, p)
	if got := g.backend.prepared("database", p.UID); got != 1 {
		t.Errorf("Got %d preparations, want 1", got)
	}
	if out, err := g.Kubectl(t.Context(), controlplane.Admin, "uncordon", nodeName).CombinedOutput(); err != nil {
		t.Errorf("kubectl uncordon: %v: %s", err, out)
	}
}

// checkCondition waits for a condition of the pod.
func (g *gates) checkCondition(t *testing.T) {
	p := g.running(t, "condition", "condition")
	isHeld(t, "Without the condition", g.plain.remove(t.Context(), p.Name, metav1.DeleteOptions{}), "no condition example.com/drained")
	const status = `{"status":{"conditions":[{"type":"example.com/drained","status":"True"}]}}`
	if _, err := g.Admin.CoreV1().Pods(g.namespace).Patch(t.Context(), p.Name, types.StrategicMergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	passes(t, "With the condition", g.plain.remove(t.Context(), p.Name, metav1.DeleteOptions{}))
	g.gone(t, p)
}

// checkTraps deletes pods whose gate is closed, in the ways that always pass.
func (g *gates) checkTraps(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	final := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	t.Run("the kubelet", func(t *testing.T) {
		p := g.running(t, "final", "database")
		passes(t, "The final deletion", plainPods{g.kubelet, g.namespace}.remove(ctx, p.Name, final))
		g.gone(t, p)
	})
	t.Run("a mirror pod", func(t *testing.T) {
		p := pod("mirror")
		p.Labels = map[string]string{gateLabel: "database"}
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "static"}
		p.Spec.NodeName = nodeName
		node, err := g.Admin.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: node.UID, Controller: new(true)}}
		p, err = g.kubelet.CoreV1().Pods(g.namespace).Create(ctx, p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		isHeld(t, "By a user", plainPods{g.alice, g.namespace}.remove(ctx, p.Name, final), "shards are left")
		passes(t, "By its kubelet", plainPods{g.kubelet, g.namespace}.remove(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(p.UID))}))
		g.gone(t, p)
	})
	t.Run("a pod that has ended", func(t *testing.T) {
		p := g.running(t, "ended", "database")
		if _, err := g.Admin.CoreV1().Pods(g.namespace).Patch(ctx, p.Name, types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		passes(t, "An eviction", g.plain.evict(ctx, p.Name, nil))
		g.gone(t, p)
	})
	t.Run("a pod that was never scheduled", func(t *testing.T) {
		p := pod("unscheduled")
		p.Labels = map[string]string{gateLabel: "database", "example.com/kubelet": "none"}
		created, err := g.Admin.CoreV1().Pods(g.namespace).Create(ctx, p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		passes(t, "A deletion", g.plain.remove(ctx, p.Name, metav1.DeleteOptions{}))
		g.gone(t, created)
	})
	t.Run("a pod that is terminating", func(t *testing.T) {
		p := g.running(t, "terminating", "database")
		if _, err := g.Admin.CoreV1().Pods(g.namespace).Patch(ctx, p.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/test"]}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		g.backend.open(p.UID)
		passes(t, "The first deletion", g.plain.remove(ctx, p.Name, metav1.DeleteOptions{}))
		g.backend.mu.Lock()
		delete(g.backend.ready, p.UID)
		g.backend.mu.Unlock()
		passes(t, "Another deletion", g.plain.remove(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}))
		if _, err := g.Admin.CoreV1().Pods(g.namespace).Patch(ctx, p.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		g.gone(t, p)
	})
	t.Run("a namespace that is terminating", func(t *testing.T) {
		ns := g.Namespace(t)
		g.runKubelet(t, ns)
		p := pod("inside")
		p.Labels = map[string]string{gateLabel: "database"}
		p = g.run(t, ns, p)
		passes(t, "Its deletion", g.Admin.CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{}))
		g.gone(t, p)
	})
	t.Run("the longest wait", func(t *testing.T) {
		p := g.running(t, "impatient", "impatient")
		err := g.plain.remove(ctx, p.Name, metav1.DeleteOptions{})
		isHeld(t, "At first", err, "s of at most 3s: shards are left")
		// On a busy machine, seconds pass between the record of the wait and the answer.
		if !regexp.MustCompile(`gate "impatient" has been closed for [0-2]s `).MatchString(fmt.Sprint(err)) {
			t.Errorf("At first: got %v, want fewer seconds than 3", err)
		}
		e2e.Eventually(t, settleBound, "the pod may go", func(ctx context.Context) error { return g.plain.remove(ctx, p.Name, metav1.DeleteOptions{}) })
		g.gone(t, p)
	})
	t.Run("a backend that does not answer", func(t *testing.T) {
		p := g.running(t, "absent", "absent")
		isHeld(t, "At first", g.plain.remove(ctx, p.Name, metav1.DeleteOptions{}), "does not answer")
		e2e.Eventually(t, settleBound, "the pod may go", func(ctx context.Context) error { return g.plain.remove(ctx, p.Name, metav1.DeleteOptions{}) })
		g.gone(t, p)
		p = g.running(t, "absent-open", "absent-open")
		passes(t, "With failurePolicy Ignore", g.plain.remove(ctx, p.Name, metav1.DeleteOptions{}))
		g.gone(t, p)
	})
	t.Run("an administrator", func(t *testing.T) { g.checkRelease(t) })
}

// checkRelease releases a pod, first without and then with the permission.
func (g *gates) checkRelease(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	p := g.running(t, "released", "database")
	release := func() error {
		_, err := g.alice.CoreV1().Pods(g.namespace).Patch(ctx, p.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"deletion.postern.dev/release":"the disk is broken"}}}`), metav1.PatchOptions{})
		return err
	}
	isForbidden(t, "Without the permission", release())
	rbac := g.Admin.RbacV1()
	if _, err := rbac.Roles(g.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "release"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{deletionv1alpha1.GroupName}, Resources: []string{deletionv1alpha1.Resource}, Verbs: []string{deletionv1alpha1.ReleaseVerb}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.RoleBindings(g.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "release"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "release"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: string(controlplane.Alice)}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	isHeld(t, "Before the release", g.plain.remove(ctx, p.Name, metav1.DeleteOptions{}), "shards are left")
	e2e.Eventually(t, settleBound, "alice may release", func(context.Context) error { return release() })
	passes(t, "After the release", g.plain.evict(ctx, p.Name, nil))
	g.gone(t, p)
	if err := rbac.RoleBindings(g.namespace).Delete(ctx, "release", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// checkWaysAround tries to get around a gate as a user who may edit pods.
func (g *gates) checkWaysAround(t *testing.T) {
	ctx := t.Context()
	p := g.running(t, "target", "database")
	pods := g.alice.CoreV1().Pods(g.namespace)
	patch := func(body string, subresources ...string) error {
		_, err := pods.Patch(ctx, p.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresources...)
		return err
	}
	e2e.Eventually(t, settleBound, "alice may not release any more", func(context.Context) error {
		if err := patch(`{"metadata":{"labels":{"example.com/gate":null}}}`); !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	isForbidden(t, "Without the label", patch(`{"metadata":{"labels":{"example.com/gate":null}}}`))
	isForbidden(t, "Another gate", patch(`{"metadata":{"labels":{"example.com/gate":"absent-open"}}}`))
	isForbidden(t, "A record", patch(`{"metadata":{"annotations":{"deletion.postern.dev/waiting":"{\"database\":{\"since\":\"2000-01-01T00:00:00Z\"}}"}}}`))
	isForbidden(t, "A deadline", patch(`{"spec":{"activeDeadlineSeconds":1}}`))
	if err := (plainPods{g.alice, g.namespace}).remove(ctx, p.Name, *metav1.NewPreconditionDeleteOptions("another")); !apierrors.IsConflict(err) {
		t.Errorf("A precondition that fails: got %v, want a conflict", err)
	}
	if got := g.backend.prepared("database", p.UID); got != 0 {
		t.Errorf("Got %d preparations for a deletion that cannot be, want none", got)
	}
	isHeld(t, "By force", plainPods{g.alice, g.namespace}.remove(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}), "shards are left")
	if got := g.backend.prepared("database", p.UID); got != 1 {
		t.Errorf("Got %d preparations, want 1", got)
	}
	isForbidden(t, "No record", patch(`{"metadata":{"annotations":{"deletion.postern.dev/waiting":null}}}`))
	_, err := g.kubelet.CoreV1().Pods(g.namespace).Patch(ctx, p.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"deletion.postern.dev/release":"by its kubelet"}}}`), metav1.PatchOptions{}, "status")
	isForbidden(t, "By the status", err)
	created := pod("created")
	created.Annotations = map[string]string{deletionv1alpha1.ReleaseAnnotation: "by its creator"}
	_, err = pods.Create(ctx, created, metav1.CreateOptions{})
	isForbidden(t, "By a template", err)
	pending := pod("pending")
	pending.Labels = map[string]string{gateLabel: "database", "example.com/kubelet": "none"}
	pending, err = g.Admin.CoreV1().Pods(g.namespace).Create(ctx, pending, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for what, body := range map[string]string{"the label": `{"metadata":{"labels":{"example.com/gate":null}}}`, "a deadline": `{"spec":{"activeDeadlineSeconds":1}}`} {
		_, err = pods.Patch(ctx, pending.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		isForbidden(t, "Before it is scheduled, "+what, err)
	}
	passes(t, "The pod that was never scheduled", plainPods{g.alice, g.namespace}.remove(ctx, pending.Name, metav1.DeleteOptions{}))
	passes(t, "Another label", patch(`{"metadata":{"labels":{"example.com/other":"label"}}}`))
	g.backend.open(p.UID)
	e2e.Eventually(t, settleBound, "the pod may go", func(ctx context.Context) error { return g.plain.remove(ctx, p.Name, metav1.DeleteOptions{}) })
	g.gone(t, p)
}

// checkFull has a pod that is so large that its record does not fit into etcd.
func (g *gates) checkFull(t *testing.T) {
	ctx := t.Context()
	full := pod("full")
	full.Labels = map[string]string{gateLabel: "database", "example.com/kubelet": "none"}
	full.Spec.NodeName = nodeName
	full.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: strings.Repeat("x", 1_400_000)}}
	pods := g.alice.CoreV1().Pods(g.namespace)
	if _, err := pods.Create(ctx, full, metav1.CreateOptions{}); err != nil {
		t.Fatalf("%.500v", err)
	}
	fill := func(n int) error {
		_, err := pods.Patch(ctx, full.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"fill":%q}}}`, strings.Repeat("x", n)), metav1.PatchOptions{})
		if err != nil && !strings.Contains(err.Error(), "request is too large") {
			t.Fatalf("Filling the pod with %d bytes: %.500v", n, err)
		}
		return err
	}
	const step = 50
	if n := sort.Search(200_000/step, func(n int) bool { return fill(n*step) != nil }); n == 0 || n == 200_000/step {
		t.Fatalf("The pod has no limit between 1.4 MB and 1.6 MB, but at step %d", n)
	}
	isHeld(t, "A full pod", g.plain.remove(ctx, full.Name, metav1.DeleteOptions{}), "request is too large")
	passes(t, "Making room", fill(0))
	isHeld(t, "With room", g.plain.remove(ctx, full.Name, metav1.DeleteOptions{}), "shards are left")
}

// checkDryRun requests dry runs in three ways.
func (g *gates) checkDryRun(t *testing.T) {
	ctx := t.Context()
	p := g.running(t, "dry", "database")
	dry := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	passes(t, "A deletion", g.plain.remove(ctx, p.Name, dry))
	passes(t, "An eviction", g.plain.evict(ctx, p.Name, &dry))
	if out, err := g.Kubectl(ctx, controlplane.Admin, "delete", "pod", "dry", "-n", g.namespace, "--dry-run=server").CombinedOutput(); err != nil || !strings.Contains(string(out), "not asked in a dry run") {
		t.Errorf("kubectl delete: %v: %s", err, out)
	}
	got, err := g.Admin.CoreV1().Pods(g.namespace).Get(ctx, p.Name, metav1.GetOptions{})
	if err != nil || got.Annotations[deletionv1alpha1.WaitingAnnotation] != "" || got.DeletionTimestamp != nil || g.backend.prepared("database", p.UID) != 0 {
		t.Errorf("Got %v and the pod %v, want nothing to happen", err, got)
	}
}

// checkCollection deletes a collection with a pod without a gate, and two pods with one. The API server stops at the first
// refusal.
func (g *gates) checkCollection(t *testing.T) {
	ctx := t.Context()
	member := func(name string) *corev1.Pod {
		p := pod(name)
		p.Labels = map[string]string{"collection": "yes"}
		if name != "free" {
			p.Labels[gateLabel] = "database"
		}
		return g.run(t, g.namespace, p)
	}
	free, first, second := member("free"), member("held-1"), member("held-2")
	removeAs := func(user kubernetes.Interface) error {
		return user.CoreV1().RESTClient().Delete().MaxRetries(0).Namespace(g.namespace).Resource("pods").Param("labelSelector", "collection=yes").Do(ctx).Error()
	}
	remove := func() error { return removeAs(g.Admin) }
	prepared := func(what string, want ...int) {
		t.Helper()
		if got := []int{g.backend.prepared("database", first.UID), g.backend.prepared("database", second.UID)}; !slices.Equal(got, want) {
			t.Errorf("%s: got %d preparations, want %d", what, got, want)
		}
	}
	err := remove()
	isHeld(t, "A collection", err, `pods "held-1" may not be deleted yet`)
	if seconds, ok := apierrors.SuggestsClientDelay(err); !ok || seconds != 1 {
		t.Errorf("Got a Retry-After of %d seconds, %t, want 1", seconds, ok)
	}
	// The client library would keep a worker of a controller.
	err = removeAs(g.As(t, "system:serviceaccount:kube-system:job-controller", "system:masters"))
	isHeld(t, "A collection, to a controller", err, `pods "held-1" may not be deleted yet`)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		t.Errorf("Got a Retry-After of %d seconds for a controller, want none", seconds)
	}
	prepared("The first requests", 1, 0)
	g.gone(t, free)
	g.backend.open(first.UID)
	e2e.Eventually(t, settleBound, "the second pod is reached", func(context.Context) error {
		if err := remove(); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), `pods "held-2"`) {
			return cmp.Or(err, errors.New("the collection is deleted"))
		}
		return nil
	})
	prepared("The second request", 1, 1)
	g.gone(t, first)
	g.backend.open(second.UID)
	e2e.Eventually(t, settleBound, "the collection may go", func(context.Context) error { return remove() })
	g.gone(t, second)
}

// checkNode has a pod on a node that does not exist. A user may delete it, and pod garbage collection does.
func (g *gates) checkNode(t *testing.T) {
	t.Helper()
	for _, name := range []string{"lost", "collected"} {
		p := pod(name)
		p.Labels = map[string]string{gateLabel: "database"}
		p.Spec.NodeName = "gone"
		lost, err := g.Admin.CoreV1().Pods(g.namespace).Create(t.Context(), p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if name == "lost" {
			passes(t, "A deletion", g.plain.remove(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
		}
		g.gone(t, lost)
	}
}

// checkAway stops Postern.
func (g *gates) checkAway(t *testing.T, postern *e2e.Postern) {
	t.Helper()
	ctx := t.Context()
	held, final := g.running(t, "away", "database"), g.running(t, "away-final", "database")
	postern.Kill()
	if err := g.plain.remove(ctx, held.Name, metav1.DeleteOptions{}); !apierrors.IsInternalError(err) {
		t.Errorf("A deletion: got %v, want an internal error", err)
	}
	passes(t, "The final deletion", plainPods{g.kubelet, g.namespace}.remove(ctx, final.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	_, err := g.Admin.CoreV1().Pods(g.namespace).Patch(ctx, held.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"deletion.postern.dev/release":"Postern is away"}}}`), metav1.PatchOptions{})
	passes(t, "A release", err)
	passes(t, "A deletion after the release", g.plain.remove(ctx, held.Name, metav1.DeleteOptions{}))
	g.gone(t, held)
	g.gone(t, final)
}

// TestDeletionGateWithTwoReplicas deletes many pods through two replicas, one of which is killed in the middle.
func TestDeletionGateWithTwoReplicas(t *testing.T) {
	ring.Second(t, "48 clients")
	t.Parallel()
	c := suite.Lend(t)
	g := newGates(t, c)
	proxy := e2e.StartProxy(t)
	b := startBalancer(t, proxy)
	replicas := []*e2e.Postern{c.LaunchPostern(t, behind(proxy, g.backend.options())), c.LaunchPostern(t, behind(proxy, g.backend.options()))}
	b.add(replicas...)
	for _, p := range replicas {
		p.AwaitReady(t)
		p.AwaitRegistered(t)
	}
	g.awaitGates(t)
	const count = 24
	var pods []*corev1.Pod
	for i := range count {
		pods = append(pods, g.running(t, fmt.Sprintf("many-%d", i), "database"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 2 * count {
		all.Go(func() {
			for ctx.Err() == nil {
				if i%2 == 0 {
					_ = g.plain.remove(ctx, pods[i/2].Name, metav1.DeleteOptions{})
				} else {
					_ = g.plain.evict(ctx, pods[i/2].Name, nil)
				}
				time.Sleep(pollPause)
			}
		})
	}
	e2e.Eventually(t, settleBound, "the first preparation begins", func(context.Context) error {
		g.backend.mu.Lock()
		defer g.backend.mu.Unlock()
		if len(g.backend.requests) == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	replicas[0].Kill()
	b.remove(t.Context(), replicas[0])
	e2e.Eventually(t, gateBound, "all preparations are started and recorded", func(ctx context.Context) error {
		for _, p := range pods {
			got, err := g.Admin.CoreV1().Pods(g.namespace).Get(ctx, p.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !strings.Contains(got.Annotations[deletionv1alpha1.WaitingAnnotation], `"started"`) {
				return fmt.Errorf("%s has %q", p.Name, got.Annotations[deletionv1alpha1.WaitingAnnotation])
			}
		}
		return nil
	})
	sent := 0
	for _, p := range pods {
		sent += g.backend.prepared("database", p.UID)
	}
	t.Logf("%d requests to prepare %d pods", sent, count)
	time.Sleep(closedFor)
	again := 0
	for _, p := range pods {
		again += g.backend.prepared("database", p.UID)
	}
	g.backend.mu.Lock()
	keys := len(g.backend.requests)
	g.backend.mu.Unlock()
	if keys != count || again != sent {
		t.Errorf("Got %d keys and %d requests after %d, want %d keys and no more requests", keys, again, sent, count)
	}
	g.backend.openAll(true)
	for _, p := range pods {
		g.gone(t, p)
	}
	cancel()
	all.Wait()
}

// pollPause is the time between two requests of a client that does not give up.
const pollPause = 100 * time.Millisecond
