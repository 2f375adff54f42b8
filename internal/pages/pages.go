// Package pages fills the caches of informers, so that no more than one page of objects or one large event in JSON is in memory at a
// time, whatever users store. Informers of client-go decode whole lists, or streams of all resources at the same time.
package pages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/internal/reads"
)

const (
	// pageSize is the largest number of objects per page. A page that takes more than pageBytes of memory is read again with
	// a tenth of the objects. After growAfter pages of that size, the next ones have twice as many.
	pageSize  = 100
	shrink    = 10
	growAfter = 4
	pageBytes = 32 << 20
	// pageTime is the time for which others wait for a page or a large event. API servers end a request for a list after a minute.
	pageTime = time.Minute
)

var errSlow = errors.New("the API server did not send a page of the list in time")

// Client lists and watches the resource of an informer.
type Client[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// NewInformer returns an informer of the objects of a client, which should have Transport. Its transformation is applied to each page
// of a list before the next one is read. The description of the resource is for logs.
func NewInformer[L runtime.Object](c Client[L], description string) cache.SharedIndexInformer {
	l := &listWatch{source: c.Watch, list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.List(ctx, options)
	}}
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{ListWithContextFunc: l.all, WatchFuncWithContext: l.watch}, pagesOnly{})
	i := &informer{cache.NewSharedIndexInformerWithOptions(lw, &transformed{}, cache.SharedIndexInformerOptions{
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, ObjectDescription: description,
	}), l}
	// An informer that has not started accepts it.
	_ = i.SetTransform(unchanged)
	return i
}

func unchanged(obj any) (any, error) { return obj, nil }

// pagesOnly is a client for which informers do not ask for a stream of all objects.
type pagesOnly struct{}

// IsWatchListSemanticsUnSupported tells client-go so.
func (pagesOnly) IsWatchListSemanticsUnSupported() bool { return true }

type informer struct {
	cache.SharedIndexInformer

	listWatch *listWatch
}

// SetTransform implements cache.SharedInformer.
func (i *informer) SetTransform(transform cache.TransformFunc) error {
	err := i.SharedIndexInformer.SetTransform(func(obj any) (any, error) {
		if t, ok := obj.(*transformed); ok {
			return t.value, nil
		}
		return transform(obj)
	})
	if err == nil {
		i.listWatch.transform = transform
	}
	return err
}

// transformed is what a cache stores of an object, on its way through client-go, which passes only API objects.
type transformed struct {
	metav1.TypeMeta
	metav1.Object

	value any
}

func newTransformed(transform cache.TransformFunc, obj runtime.Object) (*transformed, error) {
	value, err := transform(obj)
	if err != nil {
		return nil, err
	}
	m, err := meta.Accessor(value)
	if err != nil {
		return nil, fmt.Errorf("storing a %T: %w", value, err)
	}
	return &transformed{Object: m, value: value}, nil
}

// DeepCopyObject implements runtime.Object.
func (t *transformed) DeepCopyObject() runtime.Object { return t }

// listWatch lists and watches a resource.
type listWatch struct {
	list      cache.ListWithContextFunc
	source    cache.WatchFuncWithContext
	transform cache.TransformFunc
}

// all returns all objects after their transformation. It ignores the limit and the resource version of the options: a watch cache
// answers the requests of informers with a whole list. The pages of a list are of one version, which is at least as fresh.
func (l *listWatch) all(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	out := &internalversion.List{}
	options.Limit, options.ResourceVersion, options.ResourceVersionMatch = pageSize, "", ""
	for fits := 0; ; {
		next, err := l.page(ctx, options, out)
		switch {
		case options.Limit > 1 && (errors.Is(err, reads.ErrTooLarge) || errors.Is(err, errSlow)):
			options.Limit, fits = max(1, options.Limit/shrink), 0
			continue
		case err != nil:
			return nil, err
		}
		if fits++; fits == growAfter {
			options.Limit, fits = min(2*options.Limit, pageSize), 0
		}
		if options.Continue = next; next == "" {
			return out, nil
		}
	}
}

// page adds a page to a list, and returns the token of the next one.
func (l *listWatch) page(ctx context.Context, options metav1.ListOptions, out *internalversion.List) (next string, err error) {
	if err := large.Acquire(ctx, 1); err != nil {
		return "", fmt.Errorf("waiting for other lists: %w", err)
	}
	defer large.Release(1)
	ctx, cancel := context.WithTimeoutCause(ctx, pageTime, errSlow)
	defer cancel()
	page, err := l.list(reads.NewContext(ctx, &pageAccount{isOne: options.Limit == 1}), options)
	if err != nil {
		return "", errors.Join(err, context.Cause(ctx))
	}
	info, err := meta.ListAccessor(page)
	if err != nil {
		return "", fmt.Errorf("reading a page: %w", err)
	}
	out.ResourceVersion = info.GetResourceVersion()
	err = meta.EachListItemWithAlloc(page, func(obj runtime.Object) error {
		t, err := newTransformed(l.transform, obj)
		if err == nil {
			out.Items = append(out.Items, t)
		}
		return err
	})
	return info.GetContinue(), err
}

// pageAccount is an account of pageBytes, or of any size for a page of one object. Only one page at a time is read, so that nothing waits.
type pageAccount struct {
	reads.Detached

	isOne bool
	held  int64
}

// Hold implements reads.Account.
func (a *pageAccount) Hold(_ context.Context, n int64) error {
	a.held += n
	if a.held > pageBytes && !a.isOne {
		return reads.ErrTooLarge
	}
	return nil
}

// Add implements reads.Account.
func (a *pageAccount) Add(n int64) { a.held += n }

// Turn implements reads.Account. It has no end, so that a page has pageTime to arrive.
func (*pageAccount) Turn(context.Context) (end func(), err error) { return nil, nil } // See reads.Account.

// Open implements reads.Account.
func (a *pageAccount) Open() (account reads.Account, end func()) { return a, func() {} }
