package deletiongate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/postern-dev/postern/pkg/admissions/deletion/deletiongate"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	deletionv1alpha1 "github.com/postern-dev/postern/pkg/apis/deletion/v1alpha1"
)

const wait = 10 * time.Second

// backend is a server that counts the requests to prepare.
type backend struct {
	*httptest.Server

	mu       sync.Mutex
	prepared []string
	checked  int
	ready    bool
	broken   bool
}

func newBackend(tb testing.TB) *backend {
	tb.Helper()
	b := &backend{}
	b.Server = httptest.NewTLSServer(b)
	tb.Cleanup(b.Close)
	return b
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var review deletionv1alpha1.DeletionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if review.Request.Action == deletionv1alpha1.Prepare {
		b.prepared = append(b.prepared, r.Header.Get(deletionv1alpha1.KeyHeader))
	} else {
		b.checked++
	}
	if b.broken {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	review.Response = &deletionv1alpha1.Response{UID: review.Request.UID, Ready: b.ready, Message: "shards\nare left"}
	review.Request = nil
	if err := json.NewEncoder(w).Encode(review); err != nil {
		panic(err)
	}
}

func (b *backend) set(ready, broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready, b.broken = ready, broken
}

func (b *backend) keys() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.prepared)
}

// config returns a configuration with a gate that asks the backend.
func (b *backend) config(tb testing.TB, more string) []byte {
	tb.Helper()
	return []byte(`{gates: [{name: database, selector: {matchLabels: {app: db}}, backend: {kubeConfigFile: "` + kubeconfig(tb, b.URL) + `", timeoutSeconds: 1}` + more + `}]}`)
}

// kubeconfig returns the path of a kubeconfig for a server.
func kubeconfig(tb testing.TB, url string) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "kubeconfig")
	c := clientcmdapi.NewConfig()
	c.Clusters["backend"] = &clientcmdapi.Cluster{Server: url, InsecureSkipTLSVerify: true}
	c.Contexts["backend"] = &clientcmdapi.Context{Cluster: "backend"}
	c.CurrentContext = "backend"
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		tb.Fatal(err)
	}
	return file
}

func theNamespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
}

func thePod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: "6ba7b810", ResourceVersion: "1", Labels: map[string]string{"app": "db"}},
		Spec:       corev1.PodSpec{NodeName: "node-1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// cluster is a fake API server that refuses patches of an old resource version.
type cluster struct {
	env    *admittest.Environment
	config []byte
}

func newCluster(tb testing.TB, config []byte, pod *corev1.Pod) *cluster {
	tb.Helper()
	env, err := (&admittest.Case{}).Environment()
	if err != nil {
		tb.Fatal(err)
	}
	ctx := tb.Context()
	for _, add := range []func() error{
		func() error {
			_, err := env.Client.CoreV1().Namespaces().Create(ctx, theNamespace(), metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := env.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := env.Client.CoreV1().Pods("shop").Create(ctx, pod, metav1.CreateOptions{})
			return err
		},
	} {
		if err := add(); err != nil {
			tb.Fatal(err)
		}
	}
	var mu sync.Mutex
	env.Metadata.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		return patched(env.Client, a)
	})
	return &cluster{env, config}
}

// patched applies a patch of metadata as an API server does.
func patched(client *fake.Clientset, a clienttesting.Action) (bool, runtime.Object, error) {
	patch, ok := a.(clienttesting.PatchAction)
	if !ok {
		return false, nil, nil
	}
	var p struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(patch.GetPatch(), &p); err != nil {
		return true, nil, err
	}
	gvr := a.GetResource()
	obj, err := client.Tracker().Get(gvr, a.GetNamespace(), patch.GetName())
	if err != nil {
		return true, nil, err
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return true, nil, errors.New("no pod")
	}
	if p.Metadata.UID != pod.UID || p.Metadata.ResourceVersion != pod.ResourceVersion {
		return true, nil, apierrors.NewConflict(gvr.GroupResource(), pod.Name, errors.New("the object has been modified"))
	}
	pod = pod.DeepCopy()
	version, err := strconv.Atoi(pod.ResourceVersion)
	if err != nil {
		return true, nil, err
	}
	pod.ResourceVersion = strconv.Itoa(version + 1)
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	maps.Copy(pod.Annotations, p.Metadata.Annotations)
	return true, meta.AsPartialObjectMetadata(pod), client.Tracker().Update(gvr, pod, pod.Namespace)
}

// replica starts another process.
func (c *cluster) replica(tb testing.TB) admit.Handler {
	tb.Helper()
	before := len(c.env.Background)
	deps, err := c.env.Deps(deletiongate.Plugin, nil)
	if err != nil {
		tb.Fatal(err)
	}
	h, err := deletiongate.Plugin.New(deps, c.config)
	if err != nil {
		tb.Fatal(err)
	}
	c.env.Informers.StartWithContext(tb.Context())
	c.env.Informers.WaitForCacheSync(tb.Context().Done())
	for _, f := range c.env.Background[before:] {
		go f(tb.Context())
	}
	return h
}

func (c *cluster) pod(tb testing.TB) *corev1.Pod {
	tb.Helper()
	pod, err := c.env.Client.CoreV1().Pods("shop").Get(tb.Context(), "db-0", metav1.GetOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return pod
}

func (c *cluster) record(tb testing.TB) deletionv1alpha1.Record {
	tb.Helper()
	var r map[string]deletionv1alpha1.Record
	if err := json.Unmarshal([]byte(c.pod(tb).Annotations[deletionv1alpha1.WaitingAnnotation]), &r); err != nil {
		tb.Fatalf("The record does not decode: %v", err)
	}
	return r["database"]
}

// events returns the reasons of the Events so far.
func (c *cluster) events(tb testing.TB) []string {
	tb.Helper()
	list, err := c.env.Client.CoreV1().Events("shop").List(tb.Context(), metav1.ListOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	var out []string
	for _, e := range list.Items {
		out = append(out, e.Reason)
	}
	return out
}

func request(user string, groups ...string) *admissionv1.AdmissionRequest {
	r := &admissionv1.AdmissionRequest{Namespace: "shop", Name: "db-0", Operation: admissionv1.Delete}
	r.Resource = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	r.UserInfo.Username, r.UserInfo.Groups = user, groups
	return r
}

// remove deletes the pod. It returns the status of the refusal, or nil.
func remove(ctx context.Context, tb testing.TB, h admit.Handler, pod *corev1.Pod, user string, groups ...string) *metav1.Status {
	tb.Helper()
	return outcome(tb, h.Validate(ctx, &admit.Request{AdmissionRequest: request(user, groups...), OldObject: pod}))
}

func evict(ctx context.Context, tb testing.TB, h admit.Handler, user string, groups ...string) *metav1.Status {
	tb.Helper()
	r := request(user, groups...)
	r.Operation, r.SubResource = admissionv1.Create, "eviction"
	return outcome(tb, h.Validate(ctx, &admit.Request{AdmissionRequest: r, Object: &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "db-0", Namespace: "shop"}}}))
}

func outcome(tb testing.TB, err error) *metav1.Status {
	tb.Helper()
	if err == nil {
		return nil
	}
	d, ok := errors.AsType[*admit.Denial](err)
	if !ok {
		tb.Errorf("Got the error %v, want a denial", err)
		return nil
	}
	status := d.Status()
	return &status
}

func eventually(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	for end := time.Now().Add(wait); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("%s did not happen within %v", what, wait)
		}
	}
}

// TestTwoReplicasPrepareOnce deletes and evicts a pod through two replicas at the same time.
func TestTwoReplicasPrepareOnce(t *testing.T) {
	ctx := admittest.Context(t)
	for range 20 {
		b := newBackend(t)
		c := newCluster(t, b.config(t, ""), thePod())
		replicas := []admit.Handler{c.replica(t), c.replica(t)}
		pod := c.pod(t)
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				var s *metav1.Status
				if i < 8 {
					s = remove(ctx, t, replicas[i%2], pod, "alice")
				} else {
					s = evict(ctx, t, replicas[i%2], "alice")
				}
				if s == nil || s.Code != http.StatusTooManyRequests {
					t.Errorf("Got %v, want a refusal with code 429", s)
				}
			})
		}
		all.Wait()
		if got := b.keys(); !slices.Equal(got, []string{"database/6ba7b810"}) {
			t.Fatalf("Got the preparations %q, want one", got)
		}
	}
}

// TestARequestIsDecidedAgain calls twice for one deletion, as the API server does when the record has changed the pod that it
// is about to delete.
func TestARequestIsDecidedAgain(t *testing.T) {
	ctx := admittest.Context(t)
	for policy, refused := range map[string]bool{"Fail": true, "Ignore": false} {
		b := newBackend(t)
		b.set(false, true)
		c := newCluster(t, bytes.ReplaceAll(b.config(t, ""), []byte("timeoutSeconds: 1"), []byte("timeoutSeconds: 1, failurePolicy: "+policy)), thePod())
		replicas := []admit.Handler{c.replica(t), c.replica(t)}
		for i, h := range replicas {
			s := remove(ctx, t, h, c.pod(t), "alice")
			if (s != nil) != refused || refused && !strings.Contains(s.Message, "does not answer") {
				t.Errorf("%s: got %v from call %d, want a refusal because the backend does not answer: %t", policy, s, i+1, refused)
			}
		}
		if got := len(b.keys()); got != 3 {
			t.Errorf("%s: got %d requests to prepare, want the 3 attempts of one", policy, got)
		}
	}
}

// TestAKilledReplicaIsReplaced kills a replica between its record and the answer of the backend.
func TestAKilledReplicaIsReplaced(t *testing.T) {
	ctx := admittest.Context(t)
	b := newBackend(t)
	c := newCluster(t, b.config(t, ""), thePod())
	first, second := c.replica(t), c.replica(t)
	b.set(false, true)
	if s := remove(ctx, t, first, c.pod(t), "alice"); s == nil || !strings.Contains(s.Message, "does not answer") {
		t.Errorf("Got %v, want a refusal because the backend does not answer", s)
	}
	if c.record(t).Started != nil {
		t.Error("Got a started preparation, want none without an answer")
	}
	b.set(false, false)
	sent := len(b.keys())
	if s := remove(ctx, t, second, c.pod(t), "alice"); s == nil || !strings.Contains(s.Message, "does not answer") {
		t.Errorf("Got %v, want a refusal without another request to the backend", s)
	}
	if got := len(b.keys()); got != sent {
		t.Errorf("Got %d requests to prepare, want %d", got, sent)
	}
	c.env.Clock.Step(6 * time.Second)
	eventually(t, "The preparation", func() bool { return c.record(t).Started != nil })
	for _, key := range b.keys() {
		if key != "database/6ba7b810" {
			t.Errorf("Got the key %q, want the same one", key)
		}
	}
	sent = len(b.keys())
	remove(ctx, t, first, c.pod(t), "alice")
	remove(ctx, t, second, c.pod(t), "alice")
	if got := len(b.keys()); got != sent {
		t.Errorf("Got %d requests to prepare after the answer, want %d", got, sent)
	}
}

// TestRetryAfter checks who is told to wait.
func TestRetryAfter(t *testing.T) {
	ctx := admittest.Context(t)
	b := newBackend(t)
	c := newCluster(t, b.config(t, ", retryAfterSeconds: 7"), thePod())
	h := c.replica(t)
	const controller = "system:serviceaccount:kube-system:statefulset-controller"
	for name, test := range map[string]struct {
		status *metav1.Status
		want   int32
	}{
		"a person who deletes":      {remove(ctx, t, h, c.pod(t), "alice", "system:authenticated"), 7},
		"a person who evicts":       {evict(ctx, t, h, "alice"), 7},
		"a controller that deletes": {remove(ctx, t, h, c.pod(t), controller, "system:serviceaccounts"), 0},
		"a controller that evicts":  {evict(ctx, t, h, controller, "system:serviceaccounts"), 7},
	} {
		s := test.status
		if s == nil || s.Code != http.StatusTooManyRequests || s.Reason != metav1.StatusReasonTooManyRequests || s.Details == nil {
			t.Errorf("%s: got %v, want a refusal", name, s)
			continue
		}
		if s.Details.RetryAfterSeconds != test.want || s.Details.Name != "db-0" {
			t.Errorf("%s: got %+v, want %d seconds", name, s.Details, test.want)
		}
		if !strings.Contains(s.Message, "shards are left") {
			t.Errorf("%s: got the message %q, want the message of the backend in one line", name, s.Message)
		}
	}
}

// TestEvents follows a pod from the first refusal to its deletion.
func TestEvents(t *testing.T) {
	ctx := admittest.Context(t)
	b := newBackend(t)
	c := newCluster(t, b.config(t, ""), thePod())
	h := c.replica(t)
	// The recorder drops what it gets before it has started.
	time.Sleep(200 * time.Millisecond)
	remove(ctx, t, h, c.pod(t), "alice")
	remove(ctx, t, h, c.pod(t), "alice")
	eventually(t, "The Event", func() bool { return slices.Equal(c.events(t), []string{"DeletionWaiting"}) })
	b.set(true, false)
	c.env.Clock.Step(6 * time.Second)
	eventually(t, "The record that the gate is open", func() bool { return c.record(t).Ready != nil })
	eventually(t, "The Event", func() bool { return slices.Contains(c.events(t), "DeletionGateOpen") })
	if s := remove(ctx, t, h, c.pod(t), "alice"); s != nil {
		t.Errorf("Got %v, want no refusal", s)
	}
	eventually(t, "The Event", func() bool { return slices.Contains(c.events(t), "DeletionAllowed") })
	if got := len(c.events(t)); got != 3 {
		t.Errorf("Got %d Events, want 3", got)
	}
}

// TestAGateMayCloseAgain deletes a pod that was ready before.
func TestAGateMayCloseAgain(t *testing.T) {
	ctx := admittest.Context(t)
	b := newBackend(t)
	c := newCluster(t, b.config(t, ""), thePod())
	h := c.replica(t)
	remove(ctx, t, h, c.pod(t), "alice")
	b.set(true, false)
	c.env.Clock.Step(6 * time.Second)
	eventually(t, "The record that the gate is open", func() bool { return c.record(t).Ready != nil })
	b.set(false, false)
	if s := remove(ctx, t, h, c.pod(t), "alice"); s == nil {
		t.Error("Got no refusal, want one")
	}
}

// TestAReplacedPodIsNotPrepared evicts a pod of a name that belongs to another pod by the time of the write.
func TestAReplacedPodIsNotPrepared(t *testing.T) {
	ctx := admittest.Context(t)
	b := newBackend(t)
	c := newCluster(t, b.config(t, ""), thePod())
	h := c.replica(t)
	old := c.pod(t)
	old.UID = "before"
	if s := remove(ctx, t, h, old, "alice"); s != nil {
		t.Errorf("Got %v, want no refusal: the API server finds no such pod", s)
	}
	if got := b.keys(); len(got) > 0 {
		t.Errorf("Got the preparations %q, want none", got)
	}
}

// TestBackendFiles makes gates whose backend has a URL and files.
func TestBackendFiles(t *testing.T) {
	for name, test := range map[string]struct{ fields, want string }{
		"a URL with files": {"url: https://127.0.0.1:1, caFile: testdata/gate-ca.crt, clientCertificateFile: testdata/gate-client.crt, clientKeyFile: testdata/gate-client.key", ""},
		"no key":           {"url: https://127.0.0.1:1, clientCertificateFile: testdata/gate-client.crt", "a client certificate needs a certificate and a key"},
		"no CA":            {"url: https://127.0.0.1:1, caFile: testdata/none.crt", "testdata/none.crt"},
		"both":             {"url: https://127.0.0.1:1, kubeConfigFile: testdata/none", "want either url or kubeConfigFile"},
		"files of both":    {"kubeConfigFile: testdata/none, caFile: testdata/gate-ca.crt", "belong to url"},
	} {
		config := []byte("{gates: [{name: database, selector: {matchLabels: {app: db}}, backend: {" + test.fields + "}}]}")
		env, err := (&admittest.Case{}).Environment()
		if err != nil {
			t.Fatal(err)
		}
		deps, err := env.Deps(deletiongate.Plugin, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = deletiongate.Plugin.New(deps, config)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got the error %v, want %q", name, err, test.want)
		}
	}
	if _, err := os.Stat("testdata/none.crt"); err == nil {
		t.Error("testdata/none.crt exists")
	}
}
