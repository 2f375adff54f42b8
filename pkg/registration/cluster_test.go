package registration

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/internal/segment"
	"github.com/postern-dev/postern/pkg/router"
)

// cluster is a fake API server that merges applied objects. It has no field
// managers and never removes a field that is no longer applied.
type cluster struct {
	*dynamicfake.FakeDynamicClient

	mu      sync.Mutex
	applied []string
	// deleted holds the configurations that were deleted, as they were.
	deleted []*unstructured.Unstructured
}

func newCluster(t *testing.T, objects ...runtime.Object) *cluster {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{
		namespaces: "NamespaceList", deployments: "DeploymentList", coreServices: "ServiceList", leases: "LeaseList",
		pods: "PodList", replicaSets: "ReplicaSetList",
	}
	for kind, gvr := range resources() {
		kinds[gvr] = kind + "List"
	}
	c := &cluster{FakeDynamicClient: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)}
	c.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch, ok := action.(clienttesting.PatchAction)
		if !ok || patch.GetPatchType() != types.ApplyPatchType {
			return false, nil, nil
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.applied = append(c.applied, patch.GetResource().Resource+"/"+patch.GetName())
		want := &unstructured.Unstructured{}
		if err := want.UnmarshalJSON(patch.GetPatch()); err != nil {
			return true, nil, err
		}
		have, err := c.Tracker().Get(patch.GetResource(), "", patch.GetName())
		if apierrors.IsNotFound(err) {
			return true, want, c.Tracker().Create(patch.GetResource(), want, "")
		}
		if err != nil {
			return true, nil, err
		}
		merged := have.(*unstructured.Unstructured).DeepCopy()
		merged.Object = merge(merged.Object, want.Object).(map[string]any)
		return true, merged, c.Tracker().Update(patch.GetResource(), merged, "")
	})
	c.PrependReactor("delete", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if obj, err := c.Tracker().Get(action.GetResource(), "", action.(clienttesting.DeleteAction).GetName()); err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.deleted = append(c.deleted, obj.(*unstructured.Unstructured).DeepCopy())
		}
		return false, nil, nil
	})
	return c
}

// conflictIfGone makes an apply to what is gone fail if it names a version, as the API server does.
func (c *cluster) conflictIfGone(t *testing.T) {
	t.Helper()
	c.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		want := &unstructured.Unstructured{}
		if err := want.UnmarshalJSON(patch.GetPatch()); err != nil {
			return true, nil, err
		}
		if _, err := c.Tracker().Get(patch.GetResource(), "", patch.GetName()); want.GetResourceVersion() == "" || !apierrors.IsNotFound(err) {
			return false, nil, err
		}
		return true, nil, apierrors.NewConflict(patch.GetResource().GroupResource(), patch.GetName(), errors.New("it is gone"))
	})
}

// merge merges maps and lists of named items like server-side apply.
func merge(have, want any) any {
	if w, ok := want.(map[string]any); ok {
		if h, ok := have.(map[string]any); ok {
			for k, v := range w {
				h[k] = merge(h[k], v)
			}
			return h
		}
	}
	w, wok := want.([]any)
	h, hok := have.([]any)
	if !wok || !hok || named(w) == nil || named(h) == nil || len(w) == 0 {
		return want
	}
	for _, item := range w {
		name := item.(map[string]any)["name"]
		at := slices.IndexFunc(h, func(x any) bool { return x.(map[string]any)["name"] == name })
		if at < 0 {
			h = append(h, item)
			continue
		}
		h[at] = merge(h[at], item)
	}
	return h
}

// tell tells replicas of the deletions by replicas up to now, as their watches do.
func (c *cluster) tell(replicas ...*Registrar) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range c.deleted {
		for _, r := range replicas {
			r.noticeRemoval(u)
			r.notice(u)
		}
	}
}

func (c *cluster) applies() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.applied)
}

// registered returns a stored configuration, or nil.
func (c *cluster) registered(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	obj, err := c.Tracker().Get(resources()[kind], "", name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*unstructured.Unstructured)
}

// edit changes both configurations as somebody else.
func (c *cluster) edit(t *testing.T, change func(*unstructured.Unstructured)) {
	t.Helper()
	for kind := range resources() {
		c.editOne(t, kind, change)
	}
}

func (c *cluster) editOne(t *testing.T, kind string, change func(*unstructured.Unstructured)) {
	t.Helper()
	edited := c.registered(t, kind, "postern-pods").DeepCopy()
	change(edited)
	if err := c.Tracker().Update(resources()[kind], edited, ""); err != nil {
		t.Fatal(err)
	}
}

// stores returns caches of the stored configurations.
func (c *cluster) stores(t *testing.T, r *Registrar) map[string]cache.Store {
	t.Helper()
	out := map[string]cache.Store{}
	for kind, gvr := range resources() {
		list, err := c.Tracker().List(gvr, gvr.GroupVersion().WithKind(kind), "")
		if err != nil {
			t.Fatal(err)
		}
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		for _, item := range list.(*unstructured.UnstructuredList).Items {
			if item.GetLabels()[ManagedByLabel] == ManagedBy && item.GetLabels()[NamespaceLabel] == r.deployment.Namespace { // Like the selector of the informers.
				_ = store.Add(item.DeepCopy())
			}
		}
		out[kind] = store
	}
	return out
}

// bundle is a Bundle that a test can replace.
type bundle struct {
	mu      sync.Mutex
	data    []byte
	keys    [][]byte
	changed chan struct{}
	// held contains the registered bundles that the registrar reported last.
	held [][]byte
	// invalid are the names that the serving certificate is not valid for.
	invalid []string
}

func newBundle(cas ...string) *bundle {
	return &bundle{data: cert(cas...), changed: make(chan struct{})}
}

func cert(cas ...string) []byte {
	var out []byte
	for _, ca := range cas {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(ca)})...)
	}
	return out
}

func (b *bundle) Bundle() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data
}

func (b *bundle) pathKeys() [][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.keys
}

func (b *bundle) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// Held returns the bundle if a registered bundle lacks one of its CAs, and nil otherwise.
func (b *bundle) Held(registered [][]byte) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = registered
	for _, r := range registered {
		if len(lacking(base64.StdEncoding.EncodeToString(r), b.data)) > 0 {
			return b.data
		}
	}
	return nil
}

func (b *bundle) ValidFor(host string) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !slices.Contains(b.invalid, host), nil
}

func (b *bundle) seen() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var texts []string
	for _, r := range b.held {
		texts = append(texts, string(r))
	}
	slices.Sort(texts)
	return strings.Join(texts, "|")
}

func (b *bundle) replace(cas ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.changed)
	b.data, b.changed = cert(cas...), make(chan struct{})
}

func ourNamespace() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	u.SetName("postern-system")
	u.SetUID("ns-uid")
	return u
}

// other returns a configuration that a Postern in our namespace has registered.
func other(kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind}}
	u.SetName(name)
	u.SetLabels(map[string]string{ManagedByLabel: ManagedBy, NamespaceLabel: "postern-system"})
	return u
}

// know changes what a replica knows of itself and of its Deployment.
func (r *Registrar) know(change func(*Fleet)) {
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	change(r.fleet)
}

// mixed makes pods of another version run. alone makes none run.
func mixed(f *Fleet) {
	f.workload, f.looked, f.other, f.running = labels.Everything(), time.Now(), time.Now(), true
}

func alone(f *Fleet) {
	f.workload, f.looked, f.other, f.running = labels.Everything(), time.Now(), time.Time{}, false
}

// newRegistrar returns a registrar that the API server can call and that the others know.
func newRegistrar(t *testing.T, c *cluster, change func(*Deployment, *router.AdmissionService)) *Registrar {
	t.Helper()
	d, s := Deployment{Namespace: "postern-system", Service: "postern", Port: 443, Timeout: time.Second}, bareService()
	if change != nil {
		change(&d, &s)
	}
	digest, err := d.Digest([]router.AdmissionService{s})
	if err != nil {
		t.Fatal(err)
	}
	fleet := NewFleet(c, FleetOptions{Namespace: "postern-system", Name: "us", Digest: digest})
	b := newBundle("ca")
	r := NewRegistrar(c, d, []router.AdmissionService{s}, b, segment.New(b.pathKeys), fleet, nil)
	r.reached, r.noticeTime, r.CanaryPath = true, 0, "/canary/ournonce"
	r.joined.Store(true)
	return r
}

func mustSync(t *testing.T, r *Registrar, c *cluster) {
	t.Helper()
	if _, err := r.sync(t.Context(), c.stores(t, r)); err != nil {
		t.Fatalf("Synchronizing: %v", err)
	}
}

// add stores an object of our namespace.
func (c *cluster) add(t *testing.T, gvr schema.GroupVersionResource, obj any) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Tracker().Create(gvr, &unstructured.Unstructured{Object: content}, "postern-system"); err != nil {
		t.Fatal(err)
	}
}

// waitingPod is a pod of which no container runs.
func waitingPod(name string) corev1.Pod {
	return corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "postern-system", Name: name, UID: types.UID(name + "-uid"), Labels: map[string]string{"app": "postern"}},
	}
}

func runningPod(name string) corev1.Pod {
	p := waitingPod(name)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	return p
}

func terminating(p corev1.Pod) corev1.Pod {
	p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	return p
}
