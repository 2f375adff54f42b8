package reads_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/internal/reads"
)

var errFull = errors.New("others hold the memory")

// purse is an account of a fixed size.
type purse struct {
	mu         sync.Mutex
	size, held int64
	full       bool
	// turns is how many turns began, and ended how many of them are over.
	turns, over int
	// calls is how many calls began, and answered how many of them are over. If busy is true, there are too many.
	calls, answered int
	busy            bool
	// queued is how often the request waited for others.
	queued int
	// opened are the accounts that Open returned, ended is how many of them have ended.
	opened []*purse
	ended  int
}

func (p *purse) Hold(_ context.Context, n int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full {
		return errFull
	}
	p.held += n
	return nil
}

func (p *purse) Need(ctx context.Context, n int64) error { return p.Hold(ctx, n) }

func (p *purse) Add(n int64) { p.held += n }
func (p *purse) Turn(context.Context) (func(), error) {
	p.turns++
	return func() { p.over++ }, nil
}

func (p *purse) Call(context.Context) (func(), error) {
	if p.busy {
		return nil, reads.ErrBusy
	}
	p.calls++
	return func() { p.answered++ }, nil
}

func (p *purse) Queued() { p.queued++ }

func (p *purse) Fits(n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held+n <= p.size
}

func (p *purse) Open() (reads.Account, func()) {
	other := &purse{size: p.size}
	p.opened = append(p.opened, other)
	return other, func() { p.ended++ }
}

// server is an API server with one answer.
type server struct {
	text        []byte
	contentType string
	handler     http.HandlerFunc
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.handler != nil {
		s.handler(w, r)
		return
	}
	w.Header().Set("Content-Type", s.contentType)
	_, _ = w.Write(s.text)
}

func (s *server) config(t *testing.T) *rest.Config {
	t.Helper()
	api := httptest.NewServer(s)
	t.Cleanup(api.Close)
	config := &rest.Config{Host: api.URL, QPS: -1}
	config.Wrap(reads.Transport)
	return config
}

func (s *server) typed(t *testing.T) kubernetes.Interface {
	t.Helper()
	config := s.config(t)
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func encoded(t *testing.T, obj runtime.Object) []byte {
	t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		t.Fatal(err)
	}
	obj.GetObjectKind().SetGroupVersionKind(kinds[0])
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(obj, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// padded is a pod with so many empty terms, each of which takes 2 bytes of protobuf and 48 of memory.
func padded(terms int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: make([]corev1.NodeSelectorTerm, terms)},
	}}}}
}

func TestAnObjectIsHeldBeforeItIsDecoded(t *testing.T) {
	const terms = 100_000
	client := (&server{text: encoded(t, padded(terms)), contentType: runtime.ContentTypeProtobuf}).typed(t)
	a := &purse{}
	pod, err := client.CoreV1().Pods("shop").Get(reads.NewContext(t.Context(), a), "a", metav1.GetOptions{})
	if err != nil || len(pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) != terms {
		t.Fatalf("Got the error %v, or not all terms", err)
	}
	// 4 bytes for each byte of text, and 1.5 for each byte of the object.
	if least, most := int64(terms*(4*2+48*3/2)), int64(terms*(4*2+48*3/2)+10_000); a.held < least || a.held > most {
		t.Errorf("It held %d bytes, want %d to %d", a.held, least, most)
	}
	full := &purse{full: true}
	if pod, err := client.CoreV1().Pods("shop").Get(reads.NewContext(t.Context(), full), "a", metav1.GetOptions{}); !errors.Is(err, errFull) {
		t.Errorf("Got the pod %v and the error %v while others hold the memory", pod, err)
	}
	if _, err := client.CoreV1().Pods("shop").Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Errorf("Got the error %v without an account", err)
	}
}

// TestAListThatDoesNotFit covers lists, of which a shorter one may fit. An object is read even if it does not fit.
func TestAListThatDoesNotFit(t *testing.T) {
	list := &corev1.PodList{Items: []corev1.Pod{*padded(10_000), *padded(10_000)}}
	client := (&server{text: encoded(t, list), contentType: runtime.ContentTypeProtobuf}).typed(t)
	for size, want := range map[int64]error{1_000_000: reads.ErrTooLarge, 3_000_000: nil} {
		a := &purse{size: size}
		if got, err := client.CoreV1().Pods("shop").List(reads.NewContext(t.Context(), a), metav1.ListOptions{}); !errors.Is(err, want) {
			t.Errorf("With %d bytes: got %v and the error %v, want %v", size, got, err, want)
		}
	}
	client = (&server{text: encoded(t, padded(20_000)), contentType: runtime.ContentTypeProtobuf}).typed(t)
	if _, err := client.CoreV1().Pods("shop").Get(reads.NewContext(t.Context(), &purse{size: 1}), "a", metav1.GetOptions{}); err != nil {
		t.Errorf("Got the error %v for an object", err)
	}
}

func TestJSON(t *testing.T) {
	text := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":[` + strings.Repeat("{},", 99_999) + `{}]}`
	client, err := dynamic.NewForConfig((&server{text: []byte(text), contentType: "application/json"}).config(t))
	if err != nil {
		t.Fatal(err)
	}
	a := &purse{}
	deployments := client.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"})
	if u, err := deployments.Namespace("shop").Get(reads.NewContext(t.Context(), a), "a", metav1.GetOptions{}); err != nil || u.GetName() != "a" {
		t.Fatalf("Got %v and the error %v", u, err)
	}
	// An empty map and its place take 64 bytes.
	if least, most := int64(100_000*(12+96)), int64(100_000*(12+96)+10_000); a.held < least || a.held > most {
		t.Errorf("It held %d bytes, want %d to %d", a.held, least, most)
	}
}

// TestMetadata covers the answer for an object whose content is not read.
func TestMetadata(t *testing.T) {
	const labels = 10_000
	partial := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{}},
	}
	for i := range labels {
		partial.Labels[strconv.Itoa(labels+i)] = ""
	}
	var text bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(partial, &text); err != nil {
		t.Fatal(err)
	}
	client, err := metadata.NewForConfig((&server{text: text.Bytes(), contentType: runtime.ContentTypeProtobuf}).config(t))
	if err != nil {
		t.Fatal(err)
	}
	a := &purse{}
	pods := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	if got, err := pods.Namespace("shop").Get(reads.NewContext(t.Context(), a), "a", metav1.GetOptions{}); err != nil || len(got.Labels) != labels {
		t.Fatalf("Got %v and the error %v", got, err)
	}
	// A label has 11 bytes of protobuf, and 5 bytes of text and two strings in a map.
	if least, most := int64(labels*(4*11+37)), int64(labels*11*32); a.held < least || a.held > most {
		t.Errorf("It held %d bytes, want %d to %d", a.held, least, most)
	}
}

// TestAChangeIsNotRefused covers the answer to a request that changed something. It is read although there is no memory, or else
// nobody knew of the change.
func TestAChangeIsNotRefused(t *testing.T) {
	client := (&server{text: encoded(t, padded(100_000)), contentType: runtime.ContentTypeProtobuf}).typed(t)
	a := &purse{full: true}
	pods := client.CoreV1().Pods("shop")
	if _, err := pods.Patch(reads.NewContext(t.Context(), a), "a", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); err != nil || a.held < 100_000*48 {
		t.Errorf("Got the error %v, and %d bytes are held", err, a.held)
	}
	if a.turns != 0 {
		t.Error("It waited for its turn")
	}
}

// TestCalls covers which requests to API servers wait for others of their tenant, and for how long.
func TestCalls(t *testing.T) {
	s := &server{text: encoded(t, padded(1)), contentType: runtime.ContentTypeProtobuf}
	pods, a := s.typed(t).CoreV1().Pods("shop"), &purse{}
	ctx := reads.NewContext(t.Context(), a)
	s.handler = func(w http.ResponseWriter, _ *http.Request) {
		if a.calls != 1 || a.answered != 0 {
			t.Errorf("There were %d calls before the answer, of which %d are over, want 1 and 0", a.calls, a.answered)
		}
		w.Header().Set("Content-Type", s.contentType)
		_, _ = w.Write(s.text)
	}
	if _, err := pods.Get(ctx, "a", metav1.GetOptions{}); err != nil || a.answered != 1 {
		t.Errorf("Got the error %v, and %d calls are over", err, a.answered)
	}
	s.handler = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }
	if _, err := pods.Get(ctx, "a", metav1.GetOptions{}); err == nil || a.calls != 2 || a.answered != 2 {
		t.Errorf("Got the error %v, and %d of %d calls are over", err, a.answered, a.calls)
	}
	s.handler, a.busy = nil, true
	if _, err := pods.Get(ctx, "a", metav1.GetOptions{}); !errors.Is(err, reads.ErrBusy) {
		t.Errorf("Got the error %v, want %v", err, reads.ErrBusy)
	}
	if _, err := reads.Call(ctx); !errors.Is(err, reads.ErrBusy) {
		t.Errorf("Got the error %v for an access review, want %v", err, reads.ErrBusy)
	}
	// Other admission requests may be decided before the answer to a change.
	if _, err := pods.Patch(ctx, "a", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("Got the error %v for a change", err)
	}
	// What several requests share waits for none of them.
	scoped, end := reads.Scope(reads.Without(ctx))
	defer end()
	nested, endNested := reads.Scope(scoped)
	defer endNested()
	for _, ctx := range []context.Context{t.Context(), reads.Without(ctx), scoped, nested} {
		if _, err := pods.Get(ctx, "a", metav1.GetOptions{}); err != nil {
			t.Errorf("Got the error %v", err)
		}
	}
}

// TestTurns covers answers for which memory is held part by part.
func TestTurns(t *testing.T) {
	for terms, want := range map[int]int{30_000: 0, 40_000: 1, 500_000: 1} {
		client := (&server{text: encoded(t, padded(terms)), contentType: runtime.ContentTypeProtobuf}).typed(t)
		a := &purse{}
		if _, err := client.CoreV1().Pods("shop").Get(reads.NewContext(t.Context(), a), "a", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		if a.turns != want || a.over != want {
			t.Errorf("%d terms: got %d turns, of which %d are over, want %d", terms, a.turns, a.over, want)
		}
	}
}

// TestAStalledAnswer covers an API server that stops in the middle of a large answer, for which others wait.
func TestAStalledAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &purse{}
		start := time.Now()
		req, err := http.NewRequestWithContext(reads.NewContext(t.Context(), a), http.MethodGet, "https://cluster/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := reads.Transport(stalled{}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadAll(resp.Body); err == nil || !strings.Contains(err.Error(), "in time") {
			t.Errorf("Got the error %v", err)
		}
		if took := time.Since(start); a.over != 1 || took != 5*time.Second {
			t.Errorf("It took %v, and %d turns are over", took, a.over)
		}
	})
}

// stalled is an API server that sends 100,000 bytes and no more.
type stalled struct{}

func (stalled) RoundTrip(req *http.Request) (*http.Response, error) {
	r, w := io.Pipe()
	go func() {
		_, _ = w.Write(make([]byte, 100_000))
		<-req.Context().Done()
		w.CloseWithError(req.Context().Err()) // As over HTTP/2.
	}()
	return &http.Response{Body: r, Header: http.Header{"Content-Type": {"application/json"}}}, nil
}

// TestALargeObjectInJSON covers an object of a built-in kind. In JSON it is seven times as large as in etcd, and its memory is
// more than that of any object that is stored as JSON.
func TestALargeObjectInJSON(t *testing.T) {
	item := `{"weight":1,"podAffinityTerm":{"labelSelector":{},"topologyKey":"a","namespaceSelector":{}}},`
	text := `{"kind":"Deployment","metadata":{"name":"a"},"spec":[` + strings.Repeat(item, 110_000) + `{}]}`
	client, err := dynamic.NewForConfig((&server{text: []byte(text), contentType: "application/json"}).config(t))
	if err != nil {
		t.Fatal(err)
	}
	deployments := client.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"})
	if _, err := deployments.Namespace("shop").Get(reads.NewContext(t.Context(), &purse{size: 1}), "a", metav1.GetOptions{}); err != nil {
		t.Errorf("Got the error %v", err)
	}
}

// TestTheTextIsBounded covers an answer whose text has no end, and one that is compressed.
func TestTheTextIsBounded(t *testing.T) {
	endless := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for part := make([]byte, 1<<20); ; {
			if _, err := w.Write(part); err != nil {
				return // The client has closed the connection.
			}
		}
	}
	compressed := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		for part := make([]byte, 1<<20); ; {
			if _, err := z.Write(part); err != nil {
				return
			}
		}
	}
	for name, handler := range map[string]http.HandlerFunc{"endless": endless, "compressed": compressed} {
		client, a := (&server{handler: handler}).typed(t), &purse{}
		if _, err := client.CoreV1().Pods("shop").Get(reads.NewContext(t.Context(), a), "a", metav1.GetOptions{}); !errors.Is(err, reads.ErrTooLarge) {
			t.Errorf("%s: got the error %v", name, err)
		}
		if a.held > 16<<20*4 {
			t.Errorf("%s: it held %d bytes", name, a.held)
		}
		full := &purse{full: true}
		if _, err := client.CoreV1().Pods("shop").Get(reads.NewContext(t.Context(), full), "a", metav1.GetOptions{}); !errors.Is(err, errFull) {
			t.Errorf("%s: got the error %v while others hold the memory", name, err)
		}
	}
}

// TestErrorsOfTheServer covers what client-go does with answers that are errors, or that end early.
func TestErrorsOfTheServer(t *testing.T) {
	ctx := reads.NewContext(t.Context(), &purse{})
	missing := &server{handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404,"message":"gone"}`)
	}}
	if _, err := missing.typed(t).CoreV1().Pods("shop").Get(ctx, "a", metav1.GetOptions{}); err == nil || err.Error() != "gone" {
		t.Errorf("Got the error %v, want that of the server", err)
	}
	short := &server{handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, `{"apiVersion":"v1"`)
	}}
	if _, err := short.typed(t).CoreV1().Pods("shop").Get(ctx, "a", metav1.GetOptions{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Got the error %v, want %v", err, io.ErrUnexpectedEOF)
	}
	other := &server{contentType: runtime.ContentTypeProtobuf, text: []byte("k8s\x00no message")}
	if _, err := other.typed(t).CoreV1().Pods("shop").Get(ctx, "a", metav1.GetOptions{}); err == nil {
		t.Error("Got no error for an answer that is not protobuf")
	}
}

// TestWatchesAreNotRead covers watches, whose answers do not end.
func TestWatchesAreNotRead(t *testing.T) {
	s := &server{handler: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}}`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}}
	a := &purse{full: true}
	w, err := s.typed(t).CoreV1().Pods("shop").Watch(reads.NewContext(t.Context(), a), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := <-w.ResultChan(); e.Object.(*corev1.Pod).Name != "a" {
		t.Errorf("Got %v", e)
	}
}

// TestNeed needs memory that there is, and memory that others keep.
func TestNeed(t *testing.T) {
	a := &purse{size: 10}
	ctx := reads.NewContext(t.Context(), a)
	if err := reads.Need(ctx, 10); err != nil || a.held != 10 || a.queued != 0 {
		t.Errorf("Got %v, %d bytes held, queued %d times", err, a.held, a.queued)
	}
	a.full = true
	if err := reads.Need(ctx, 1); !errors.Is(err, errFull) || a.queued != 1 {
		t.Errorf("Got %v, queued %d times, want %v, once", err, a.queued, errFull)
	}
	if err := errors.Join(reads.Need(t.Context(), 1), reads.Need(reads.Without(ctx), 1)); err != nil {
		t.Errorf("Got %v without an account", err)
	}
}

func TestScope(t *testing.T) {
	if ctx, end := reads.Scope(t.Context()); ctx != t.Context() {
		t.Error("Got another context without an account")
	} else {
		end()
	}
	if err := reads.Hold(t.Context(), 1<<40); err != nil {
		t.Errorf("Got the error %v without an account", err)
	}
	a := &purse{size: 10}
	ctx, end := reads.Scope(reads.NewContext(t.Context(), a))
	if err := reads.Hold(ctx, 10); err != nil {
		t.Errorf("Got the error %v", err)
	}
	if err := reads.Hold(ctx, 1); !errors.Is(err, reads.ErrTooLarge) {
		t.Errorf("Got the error %v, want %v", err, reads.ErrTooLarge)
	}
	without := reads.Without(ctx)
	if err := reads.Hold(without, 1); err != nil {
		t.Errorf("Got the error %v without an account", err)
	}
	within, endWithin := reads.Scope(without)
	defer endWithin()
	if err := reads.Hold(within, 11); !errors.Is(err, reads.ErrTooLarge) {
		t.Errorf("Got the error %v in a scope, want %v", err, reads.ErrTooLarge)
	}
	if reads.Without(t.Context()) != t.Context() {
		t.Error("Got another context where there is no account")
	}
	if end(); a.held != 0 || a.opened[0].held != 10 || a.ended != 1 {
		t.Errorf("Got %d bytes in the account and %d in the scope; %d scopes ended", a.held, a.opened[0].held, a.ended)
	}
}
