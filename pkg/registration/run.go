package registration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// settleTime is how long events are collected before a sync.
	settleTime = 500 * time.Millisecond
	// syncTimeout bounds all requests of one sync, so that a sync is tried again
	// after an API server hangs.
	syncTimeout = 30 * time.Second
	// retryTime is how soon a sync that failed is tried again. It doubles with each
	// failure, up to maxRetryTime.
	retryTime    = time.Second
	maxRetryTime = time.Minute
	// resyncTime is the interval of syncs without an event.
	resyncTime = 5 * time.Minute
)

// Run registers the services as soon as probe succeeds, and keeps them registered
// until ctx ends. probe checks whether a request from the API server would reach
// Postern.
func (r *Registrar) Run(ctx context.Context, probe func(context.Context) error) error {
	events := make(chan *unstructured.Unstructured, 16)
	stores := map[string]cache.Store{}
	namespace, err := r.watch(ctx, namespaces, events, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, r.deployment.Namespace).String()
	})
	if err != nil {
		return err
	}
	var informers []cache.SharedIndexInformer
	for kind, gvr := range resources() {
		informer, err := r.watch(ctx, gvr, events, func(o *metav1.ListOptions) { o.LabelSelector = r.deployment.Selector() })
		if err != nil {
			return err
		}
		stores[kind] = informer.GetStore()
		informers = append(informers, informer)
	}
	var tasks sync.WaitGroup
	defer tasks.Wait()
	reached := make(chan struct{})
	tasks.Go(func() {
		if r.waitForProbe(ctx, r.introducing(probe)) {
			close(reached)
		}
	})
	// Each sync reads the namespace. The informer only tells when to sync.
	tasks.Go(func() { namespace.RunWithContext(ctx) })
	for _, informer := range informers {
		tasks.Go(func() { informer.RunWithContext(ctx) })
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return nil
		}
	}
	r.loop(ctx, stores, events, reached)
	return nil
}

// watch creates an informer without starting it. It sends every object that changes to events.
func (r *Registrar) watch(ctx context.Context, gvr schema.GroupVersionResource, events chan<- *unstructured.Unstructured, options dynamicinformer.TweakListOptionsFunc) (cache.SharedIndexInformer, error) {
	informer := dynamicinformer.NewFilteredDynamicInformer(r.client, gvr, metav1.NamespaceAll, 0, cache.Indexers{}, options).Informer()
	send := func(obj any) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			select {
			case events <- u:
			case <-ctx.Done():
			}
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: send, UpdateFunc: func(_, obj any) { send(obj) }, DeleteFunc: func(obj any) { send(last(obj)) },
	})
	if err == nil {
		// This handler does not wait for the end of a sync.
		see := func(obj any) {
			if u, ok := obj.(*unstructured.Unstructured); ok {
				r.segments.Saw(r.deployment.registeredSegments(u))
			}
		}
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, obj any) { see(obj) }, DeleteFunc: func(obj any) {
			if u, ok := last(obj).(*unstructured.Unstructured); ok {
				r.noticeRemoval(u)
			}
		}})
	}
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", gvr.Resource, err)
	}
	return informer, nil
}

// last returns the last state of a deleted object. After a gap of the watch it is an older one, and a removal looks like a deletion by
// somebody else. It is undone until those that have removed it register.
func last(obj any) any {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return tombstone.Obj
	}
	return obj
}

func (r *Registrar) loop(ctx context.Context, stores map[string]cache.Store, events <-chan *unstructured.Unstructured, reached <-chan struct{}) {
	log := klog.FromContext(ctx)
	resync := time.NewTicker(resyncTime)
	defer resync.Stop()
	trim := time.NewTicker(r.deployment.keepCAs() / 2)
	defer trim.Stop()
	// fixed is true if an event does not change the wait.
	wait, fixed := time.After(0), true
	after := func(d time.Duration) { wait, fixed = time.After(d), true }
	// Get the channels before sync reads what they tell of. Then no change between
	// the two is missed.
	changed, moved, others := r.bundle.Changed(), r.segments.Changed(), r.fleet.Changed()
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-events:
			if u.GetKind() == "Namespace" {
				// A namespace that is terminating must not wait.
				after(0)
			} else if r.notice(u); !fixed {
				after(settleTime)
			}
		case <-changed:
			log.Info("The CA bundle changed, registering again")
			changed = r.bundle.Changed()
			after(0)
		case <-moved:
			moved = r.segments.Changed()
			after(0)
		case <-others:
			others = r.fleet.Changed()
			after(0)
		case <-reached:
			reached = nil
			r.markReached()
			after(0)
		case <-resync.C:
			after(0)
		case <-trim.C:
			if len(r.surplus) > 0 {
				after(0)
			}
		case <-wait:
			wait, changed, moved, others = nil, r.bundle.Changed(), r.segments.Changed(), r.fleet.Changed()
			if again := r.attempt(ctx, stores); again > 0 {
				wait = time.After(again)
			}
			fixed = r.failures > 0
		}
	}
}

// attempt syncs and returns the time after which it must be repeated, or 0.
func (r *Registrar) attempt(ctx context.Context, stores map[string]cache.Store) (again time.Duration) {
	again, err := r.sync(ctx, stores)
	if err == nil || ctx.Err() != nil || errors.Is(err, context.Canceled) { // Leave cancels a sync.
		r.failures = 0
		return again
	}
	r.setStatus(err)
	r.metrics.failedToRegister()
	again = min(retryTime<<min(r.failures, 10), maxRetryTime)
	r.failures++
	klog.FromContext(ctx).Error(err, "Could not register", "retryAfter", again)
	return again
}

func (r *Registrar) markReached() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reached = true
}

// notice learns from the last state of a configuration that Uninstall deleted it.
func (r *Registrar) notice(u *unstructured.Unstructured) {
	if _, ok := u.GetAnnotations()[UninstalledAnnotation]; ok {
		r.uninstalled.Store(true)
	}
}
