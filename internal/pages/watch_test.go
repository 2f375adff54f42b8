package pages_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/internal/pages"
	"github.com/postern-dev/postern/internal/reads"
)

// stream is an API server with the events of a watch. Its list is empty.
type stream struct {
	// events returns the events after a version.
	events func(version string) []string
	// refuse is the number of watches that are answered with a long text and 429.
	refuse int

	mu      sync.Mutex
	watched []string
}

// event returns an event for an object with so many empty items.
func event(kind, name string, version, items int) string {
	return fmt.Sprintf(`{"type":%q,"object":{"apiVersion":"v1","kind":"Thing","metadata":{"name":%q,"resourceVersion":"%d"},"spec":[%s{}]}}`+"\n",
		kind, name, version, strings.Repeat("{},", items))
}

func (s *stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if !r.URL.Query().Has("watch") {
		fmt.Fprint(w, `{"apiVersion":"v1","kind":"ThingList","metadata":{"resourceVersion":"7"},"items":[]}`)
		return
	}
	version := r.URL.Query().Get("resourceVersion")
	s.mu.Lock()
	s.watched = append(s.watched, version)
	refused := len(s.watched) <= s.refuse
	s.mu.Unlock()
	if refused {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, strings.Repeat(" ", 300_000))
		return
	}
	for _, e := range s.events(version) {
		fmt.Fprint(w, e)
		_ = http.NewResponseController(w).Flush()
	}
	<-r.Context().Done()
}

// informer returns an informer of the objects of the stream.
func (s *stream) informer(t *testing.T, transform cache.TransformFunc) cache.SharedIndexInformer {
	t.Helper()
	api := httptest.NewServer(s)
	t.Cleanup(func() { api.CloseClientConnections(); api.Close() })
	config := &rest.Config{Host: api.URL, QPS: -1}
	config.Wrap(reads.Transport)
	config.Wrap(pages.Transport)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	i := pages.NewInformer(client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "things"}), "things")
	if err := i.SetTransform(transform); err != nil {
		t.Fatal(err)
	}
	return i
}

// named is a transformation that keeps the name.
func named(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	return &kept{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), ResourceVersion: u.GetResourceVersion()}}, nil
}

// TestTheWatchGoesOnAfterALargeEvent has decoders that keep no buffer for it.
func TestTheWatchGoesOnAfterALargeEvent(t *testing.T) {
	last := []string{event("ADDED", "c", 10, 1), event("DELETED", "a", 11, 1), event("BOOKMARK", "", 12, 1), event("MODIFIED", "b", 13, 30_000)}
	s := &stream{events: func(version string) []string {
		switch version {
		case "7":
			return append([]string{event("ADDED", "a", 8, 1), event("ADDED", "b", 9, 100_000)}, last...)
		case "9":
			return last
		case "13":
			return []string{event("ADDED", "d", 14, 1)}
		}
		return nil
	}}
	i := s.informer(t, named)
	run(t, i)
	becomes(t, i, "b", "c", "d")
	for _, obj := range i.GetStore().List() {
		if k, ok := obj.(*kept); !ok || k.Name == "b" && k.ResourceVersion != "13" {
			t.Errorf("The store has %#v", obj)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := []string{"7", "9", "13"}; !slices.Equal(s.watched, want) {
		t.Errorf("It watched from %q, want %q", s.watched, want)
	}
}

// TestALargeEventAfterARefusal has an API server refuse the first watch with a text as long as a large event. client-go
// repeats the request.
func TestALargeEventAfterARefusal(t *testing.T) {
	s := &stream{refuse: 1, events: func(version string) []string {
		if version != "7" {
			return nil
		}
		return []string{event("ADDED", "large", 8, 100_000)}
	}}
	i := s.informer(t, named)
	run(t, i)
	becomes(t, i, "large")
}

// TestAnEventWithoutALineBreak covers servers that send the line break with the next event.
func TestAnEventWithoutALineBreak(t *testing.T) {
	s := &stream{events: func(version string) []string {
		if version != "7" {
			return nil
		}
		return []string{strings.TrimSpace(event("ADDED", "small", 8, 1)), "\n" + event("ADDED", "large", 9, 100_000)}
	}}
	i := s.informer(t, named)
	run(t, i)
	becomes(t, i, "large", "small")
	alone := &stream{events: func(string) []string { return []string{strings.TrimSpace(event("ADDED", "small", 8, 1))} }}
	i = alone.informer(t, named)
	run(t, i)
	becomes(t, i, "small")
}

// TestLargeEventsComeInTurn has two informers that get a large event at the same time, and one that lists.
func TestLargeEventsComeInTurn(t *testing.T) {
	listed := make(chan struct{})
	events := func(version string) []string {
		if version != "7" {
			return nil
		}
		<-listed
		return []string{event("ADDED", "small", 8, 1), event("ADDED", "large", 9, 100_000), event("ADDED", "later", 10, 1)}
	}
	busy, resume := make(chan string, 3), make(chan struct{})
	defer close(resume)
	blocking := func(obj any) (any, error) {
		if u, ok := obj.(*unstructured.Unstructured); ok && u.GetName() == "large" {
			busy <- u.GetName()
			<-resume
		}
		return named(obj)
	}
	first, second := (&stream{events: events}).informer(t, blocking), (&stream{events: events}).informer(t, blocking)
	run(t, first)
	run(t, second)
	synced(t, first)
	synced(t, second)
	close(listed)
	<-busy
	becomes(t, first, "small")
	becomes(t, second, "small")
	third := newAccounts(1).informer(t, trim)
	select {
	case <-busy:
		t.Error("Two large events are in memory")
	case <-time.After(300 * time.Millisecond):
	}
	if third.HasSynced() {
		t.Error("A page is in memory beside a large event")
	}
	resume <- struct{}{}
	<-busy
	resume <- struct{}{}
	becomes(t, first, "large", "small")
	becomes(t, second, "large", "small")
	synced(t, third)
}

// TestAWatchThatStopsGivesItsTurnBack stops informers in the middle of a large event, while they wait for their turn, and
// while the event is transformed.
func TestAWatchThatStopsGivesItsTurnBack(t *testing.T) {
	half := event("ADDED", "large", 8, 100_000)
	half = half[:len(half)/2]
	stalled := &stream{events: func(string) []string { return []string{half} }}
	whole := &stream{events: func(version string) []string {
		if version != "7" {
			return nil
		}
		return []string{event("ADDED", "large", 8, 100_000)}
	}}
	first := stalled.informer(t, named)
	stopFirst := start(t, first)
	synced(t, first)
	for end := time.Now().Add(deadline); !pages.LargeIsTaken() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	// Nothing tells when an informer waits for its turn. It has time for that here.
	const moment = 200 * time.Millisecond
	// The list of another informer waits too, and ends with its context.
	other := newAccounts(1).informer(t, trim)
	time.Sleep(moment)
	if other.HasSynced() {
		t.Fatal("The stalled event holds no turn")
	}
	stopFirst()
	synced(t, other)
	busy, resume := make(chan struct{}, 1), make(chan struct{})
	stopSecond := start(t, whole.informer(t, func(obj any) (any, error) {
		busy <- struct{}{}
		<-resume
		return named(obj)
	}))
	<-busy
	stopThird := start(t, whole.informer(t, named))
	time.Sleep(moment)
	stopThird()
	close(resume)
	stopSecond()
	last := whole.informer(t, named)
	run(t, last)
	becomes(t, last, "large")
}
