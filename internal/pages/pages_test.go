package pages_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/internal/pages"
	"github.com/postern-dev/postern/internal/reads"
)

const deadline = 30 * time.Second

// accounts is a client of ServiceAccounts whose list has pages of any size.
type accounts struct {
	names   []string
	watches chan *watch.FakeWatcher
	// answer returns an error instead of a page, or nil.
	answer func(options metav1.ListOptions) error

	mu    sync.Mutex
	asked []metav1.ListOptions
}

func newAccounts(n int) *accounts {
	a := &accounts{watches: make(chan *watch.FakeWatcher, 10)}
	for i := range n {
		a.names = append(a.names, fmt.Sprintf("a%05d", i))
	}
	return a
}

func (a *accounts) List(_ context.Context, options metav1.ListOptions) (*corev1.ServiceAccountList, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, options)
	if a.answer != nil {
		if err := a.answer(options); err != nil {
			return nil, err
		}
	}
	first, _ := strconv.Atoi(options.Continue)
	end := min(first+int(options.Limit), len(a.names))
	list := &corev1.ServiceAccountList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	for _, name := range a.names[first:end] {
		list.Items = append(list.Items, corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{"a": "b"}}})
	}
	if end < len(a.names) {
		list.Continue = strconv.Itoa(end)
	}
	return list, nil
}

func (a *accounts) Watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, options)
	w := watch.NewFake()
	a.watches <- w
	return w, nil
}

// limits returns the limits of the lists.
func (a *accounts) limits() []int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []int64
	for _, options := range a.asked {
		if options.Limit > 0 {
			out = append(out, options.Limit)
		}
	}
	return out
}

// kept is what the tests store of an account.
type kept struct {
	metav1.ObjectMeta

	times int
}

// trim is a transformation that is not idempotent.
func trim(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.ServiceAccount:
		return &kept{metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}, 1}, nil
	case *kept:
		return &kept{o.ObjectMeta, o.times + 1}, nil
	}
	return obj, nil
}

// informer returns a running informer of the accounts.
func (a *accounts) informer(t *testing.T, transform cache.TransformFunc) cache.SharedIndexInformer {
	t.Helper()
	i := pages.NewInformer(a, "serviceaccounts")
	if transform != nil {
		if err := i.SetTransform(transform); err != nil {
			t.Fatal(err)
		}
	}
	run(t, i)
	return i
}

func run(t *testing.T, i cache.SharedIndexInformer) {
	t.Helper()
	t.Cleanup(start(t, i))
}

func start(t *testing.T, i cache.SharedIndexInformer) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var task sync.WaitGroup
	task.Go(func() { i.RunWithContext(ctx) })
	return func() { cancel(); task.Wait() }
}

func synced(t *testing.T, i cache.SharedIndexInformer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
		t.Fatal("The informer does not sync")
	}
}

// becomes waits until the store has these names.
func becomes(t *testing.T, i cache.SharedIndexInformer, names ...string) {
	t.Helper()
	for end := time.Now().Add(deadline); ; time.Sleep(time.Millisecond) {
		keys := i.GetStore().ListKeys()
		slices.Sort(keys)
		if slices.Equal(keys, names) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("The store has %v, want %v", keys, names)
		}
	}
}

func TestAListIsReadPageByPage(t *testing.T) {
	a := newAccounts(250)
	i := a.informer(t, trim)
	synced(t, i)
	if n := len(i.GetStore().List()); n != 250 {
		t.Errorf("The store has %d objects, want 250", n)
	}
	for _, obj := range i.GetStore().List() {
		if k, ok := obj.(*kept); !ok || k.times != 1 {
			t.Fatalf("The store has %#v, want what one transformation returned", obj)
		}
	}
	if got := a.limits(); !slices.Equal(got, []int64{100, 100, 100}) {
		t.Errorf("It asked for pages of %d", got)
	}
	w := <-a.watches
	for _, options := range a.asked {
		if options.Limit > 0 && options.ResourceVersion != "" || options.Limit == 0 && options.ResourceVersion != "7" {
			t.Errorf("It asked with the version %q and the limit %d", options.ResourceVersion, options.Limit)
		}
	}
	w.Add(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b", ResourceVersion: "8"}})
	for end := time.Now().Add(deadline); ; time.Sleep(time.Millisecond) {
		if obj, ok, _ := i.GetStore().GetByKey("shop/b"); ok {
			if _, ok := obj.(*kept); !ok {
				t.Errorf("The watch stored %#v", obj)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("What was created later is not in the store")
		}
	}
}

// TestAnotherListReplacesTheFirst breaks the watch with an error for which informers list again.
func TestAnotherListReplacesTheFirst(t *testing.T) {
	a := newAccounts(3)
	i := a.informer(t, trim)
	becomes(t, i, "shop/a00000", "shop/a00001", "shop/a00002")
	a.mu.Lock()
	a.names = []string{"a00001", "b"}
	a.mu.Unlock()
	expired := apierrors.NewResourceExpired("too old").Status()
	(<-a.watches).Error(&expired)
	becomes(t, i, "shop/a00001", "shop/b")
}

// TestALargePageIsReadAgain has some accounts that fit only into small pages.
func TestALargePageIsReadAgain(t *testing.T) {
	for name, test := range map[string]struct {
		// fits is the largest page of the accounts from 30 to 39.
		fits int64
		want []int64
	}{
		"ten":    {10, []int64{100, 10, 10, 10, 10, 20, 20, 20}},
		"one":    {1, []int64{100, 10, 10, 10, 10, 1, 1, 1, 1, 2, 1, 1, 1, 1, 2, 1}},
		"no one": {0, []int64{100, 10, 10, 10, 10, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAccounts(100)
			a.answer = func(options metav1.ListOptions) error {
				first, _ := strconv.ParseInt(options.Continue, 10, 64)
				if first < 40 && first+options.Limit > 30 && options.Limit > test.fits {
					return fmt.Errorf("decoding: %w", reads.ErrTooLarge)
				}
				return nil
			}
			i := a.informer(t, trim)
			if test.fits > 0 {
				synced(t, i)
				if n := len(i.GetStore().List()); n != 100 {
					t.Errorf("The store has %d objects, want 100", n)
				}
			}
			for end := time.Now().Add(deadline); len(a.limits()) < len(test.want) && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			if got := a.limits(); len(got) < len(test.want) || !slices.Equal(got[:len(test.want)], test.want) {
				t.Errorf("It asked for pages of %d, want %d", got, test.want)
			}
		})
	}
}

// TestAListThatEndsEarly fails once in the middle of a list. Informers list again.
func TestAListThatEndsEarly(t *testing.T) {
	for name, err := range map[string]error{
		"away":    errors.New("connection refused"),
		"expired": apierrors.NewResourceExpired("the continue token is too old"),
	} {
		t.Run(name, func(t *testing.T) {
			a, failed := newAccounts(250), false
			a.answer = func(options metav1.ListOptions) error {
				if options.Continue == "200" && !failed {
					failed = true
					return err
				}
				return nil
			}
			i := a.informer(t, trim)
			synced(t, i)
			if n := len(i.GetStore().List()); n != 250 || !failed {
				t.Errorf("The store has %d objects, want 250", n)
			}
		})
	}
}

// TestWithoutATransformation stores the objects as they are.
func TestWithoutATransformation(t *testing.T) {
	i := newAccounts(1).informer(t, nil)
	synced(t, i)
	if obj, _, _ := i.GetStore().GetByKey("shop/a00000"); obj.(*corev1.ServiceAccount).Annotations["a"] != "b" {
		t.Errorf("The store has %#v", obj)
	}
}

// TestATransformationThatFails makes the list fail, as in client-go.
func TestATransformationThatFails(t *testing.T) {
	for name, transform := range map[string]cache.TransformFunc{
		"with an error":      func(any) (any, error) { return nil, errors.New("no") },
		"with a wrong value": func(any) (any, error) { return "no object", nil },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAccounts(1)
			i := a.informer(t, transform)
			for end := time.Now().Add(deadline); len(a.limits()) < 2 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			if i.HasSynced() || len(i.GetStore().List()) != 0 {
				t.Errorf("The store has %v", i.GetStore().List())
			}
		})
	}
}

// TestPagesOfLargeObjects lists objects from an API server, of which each takes 12 MB of memory.
func TestPagesOfLargeObjects(t *testing.T) {
	const objects = 7
	var mu sync.Mutex
	sent := []int{}
	spec := `"spec":[` + strings.Repeat("{},", 99_999) + `{}]`
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		w.Header().Set("Content-Type", "application/json")
		if query.Has("watch") {
			<-r.Context().Done()
			return
		}
		first, _ := strconv.Atoi(query.Get("continue"))
		limit, _ := strconv.Atoi(query.Get("limit"))
		end := min(first+limit, objects)
		next := ""
		if end < objects {
			next = strconv.Itoa(end)
		}
		items := make([]string, 0, objects)
		for i := first; i < end; i++ {
			items = append(items, fmt.Sprintf(`{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a%d"},%s}`, i, spec))
		}
		mu.Lock()
		sent = append(sent, end-first)
		mu.Unlock()
		fmt.Fprintf(w, `{"apiVersion":"v1","kind":"ThingList","metadata":{"continue":%q,"resourceVersion":"7"},"items":[%s]}`, next, strings.Join(items, ","))
	}))
	// It is closed when the informer has stopped, which would connect again.
	t.Cleanup(func() { api.CloseClientConnections(); api.Close() })
	config := &rest.Config{Host: api.URL, QPS: -1}
	config.Wrap(reads.Transport)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	i := pages.NewInformer(client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "things"}), "things")
	if err := i.SetTransform(func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		return &kept{ObjectMeta: metav1.ObjectMeta{Name: u.GetName()}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	run(t, i)
	synced(t, i)
	if n := len(i.GetStore().List()); n != objects {
		t.Errorf("The store has %d objects, want %d", n, objects)
	}
	mu.Lock()
	defer mu.Unlock()
	// 100 and 10 were asked for, and then 1.
	if want := []int{7, 7, 1, 1, 1, 1, 2, 1}; !slices.Equal(sent, want) {
		t.Errorf("It read pages of %d objects, want %d", sent, want)
	}
}
