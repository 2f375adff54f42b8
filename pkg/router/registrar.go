package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// FieldManager is the field manager of Postern in server-side apply.
	FieldManager = "postern"

	// settleTime is how long events are collected before a sync. It also bounds how
	// often a configuration is repaired that somebody keeps editing.
	settleTime = 500 * time.Millisecond
	// syncTimeout bounds all requests of one sync, so that a sync is tried again
	// after an API server hangs.
	syncTimeout = 30 * time.Second
	// retryTime is how soon a sync that failed is tried again.
	retryTime = 3 * time.Second
	// resyncTime is the interval of syncs without an event. It is also how long a
	// replica yields to a newer one.
	resyncTime = 5 * time.Minute
)

// Registrar keeps the webhook configurations of the services registered. It applies
// them once the webhooks can be reached, repairs them when somebody deletes or
// edits them, and removes the configurations of services that are no longer
// enabled.
type Registrar struct {
	client     dynamic.Interface
	deployment Deployment
	services   []AdmissionService
	bundle     Bundle
	metrics    *Metrics
	generation generation

	// Only the goroutine of Run uses the fields below.
	rival generation
	owned bool
	// settled is true if a sync found every configuration as desired.
	settled bool
	// registeredKey is the path prefix that this replica last saw registered. The
	// prefix was one of its own, so the replica leaves the prefixes of other
	// replicas alone.
	registeredKey string
	// surplus holds the CAs that stay registered for a while.
	surplus surplus
}

// NewRegistrar returns a registrar for the services. It does nothing before
// Prepare and Run.
func NewRegistrar(client dynamic.Interface, d Deployment, services []AdmissionService, b Bundle, m *Metrics) (*Registrar, error) {
	gen, err := newGeneration(d, services, time.Now())
	if err != nil {
		return nil, err
	}
	return &Registrar{client: client, deployment: d, services: services, bundle: b, metrics: m, generation: gen, surplus: surplus{}}, nil
}

// resources are the two kinds of configuration.
func resources() map[string]schema.GroupVersionResource {
	gv := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	return map[string]schema.GroupVersionResource{
		"MutatingWebhookConfiguration":   gv.WithResource("mutatingwebhookconfigurations"),
		"ValidatingWebhookConfiguration": gv.WithResource("validatingwebhookconfigurations"),
	}
}

// Prepare removes configurations of services that are no longer enabled. It is
// called before this replica is ready: the API server sends requests to a ready
// replica, and the replica would answer requests for these services with 404.
func (r *Registrar) Prepare(ctx context.Context) error {
	desired, err := r.desired(nil)
	if err != nil {
		return err
	}
	for kind, gvr := range resources() {
		list, err := r.client.Resource(gvr).List(ctx, metav1.ListOptions{LabelSelector: ManagedByLabel + "=" + ManagedBy})
		if err != nil {
			return fmt.Errorf("listing %s: %w", gvr.Resource, err)
		}
		for i := range list.Items {
			if err := r.removeStale(ctx, kind, &list.Items[i], desired); err != nil {
				return err
			}
		}
	}
	return r.introduce(ctx)
}

// Run registers the services as soon as probe succeeds, and keeps them registered
// until ctx ends. probe checks whether a request from the API server would reach
// Postern.
func (r *Registrar) Run(ctx context.Context, probe func(context.Context) error) error {
	r.markUnregistered()
	if !waitForProbe(ctx, r.introducing(probe)) {
		return nil
	}
	events := make(chan *unstructured.Unstructured, 16)
	stores := map[string]cache.Store{}
	synced := make([]cache.InformerSynced, 0, len(resources()))
	for kind, gvr := range resources() {
		informer, err := r.watch(ctx, gvr, events)
		if err != nil {
			return err
		}
		stores[kind] = informer.GetStore()
		synced = append(synced, informer.HasSynced)
		go informer.RunWithContext(ctx)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	r.loop(ctx, stores, events)
	return nil
}

// watch creates an informer without starting it. The handler of its events uses
// only the generation of the configuration.
func (r *Registrar) watch(ctx context.Context, gvr schema.GroupVersionResource, events chan<- *unstructured.Unstructured) (cache.SharedIndexInformer, error) {
	informer := dynamicinformer.NewFilteredDynamicInformer(r.client, gvr, metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{ManagedByLabel: ManagedBy}.String()
	}).Informer()
	send := func(obj any) {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		if u, ok := obj.(*unstructured.Unstructured); ok {
			select {
			case events <- u:
			case <-ctx.Done():
			}
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: send, UpdateFunc: func(_, obj any) { send(obj) }, DeleteFunc: send,
	})
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", gvr.Resource, err)
	}
	return informer, nil
}

func (r *Registrar) loop(ctx context.Context, stores map[string]cache.Store, events <-chan *unstructured.Unstructured) {
	log := klog.FromContext(ctx)
	resync := time.NewTicker(resyncTime)
	defer resync.Stop()
	trim := time.NewTicker(r.deployment.keepCAs() / 2)
	defer trim.Stop()
	wait := time.After(0)
	// Get the channel before sync reads the bundle. Then no change between the two
	// is missed.
	changed := r.bundle.Changed()
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-events:
			r.notice(log, generationOf(u))
			if wait == nil {
				wait = time.After(settleTime)
			}
		case <-changed:
			log.Info("The CA bundle changed, registering again")
			changed = r.bundle.Changed()
			wait = time.After(0)
		case <-resync.C:
			r.forgive()
			wait = time.After(0)
		case <-trim.C:
			if len(r.surplus) > 0 {
				wait = time.After(0)
			}
		case <-wait:
			wait, changed = nil, r.bundle.Changed()
			if err := r.sync(ctx, stores); err != nil && ctx.Err() == nil {
				log.Error(err, "Could not register", "retryAfter", retryTime)
				wait = time.After(retryTime)
			}
		}
	}
}

// forgive allows this Postern to register again after it yielded to a newer one,
// because the newer one may be gone. A Postern that was uninstalled does not
// register again.
func (r *Registrar) forgive() {
	if !r.rival.uninstalled() {
		r.rival = generation{}
	}
}

// notice remembers the newest rival. A rival is a Postern that started later with
// other services. In a rollout the rival replaces this Postern.
func (r *Registrar) notice(log klog.Logger, g generation) {
	if g.newerThan(r.generation) && g.newerThan(r.rival) {
		r.rival = g
		log.Info("A newer Postern registers now", "generation", g.String(), "ours", r.generation.String())
	}
}

// sync makes the registered configurations equal to the desired ones.
func (r *Registrar) sync(ctx context.Context, stores map[string]cache.Store) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	missing := r.hold(stores)
	if r.rival.newerThan(r.generation) {
		if len(missing) == 0 {
			return nil
		}
		return r.introduce(ctx)
	}
	owner, gone, err := r.owner(ctx)
	if err != nil {
		return err
	}
	if gone {
		klog.FromContext(ctx).Info("Our namespace is gone or going, not registering", "namespace", r.deployment.Namespace)
		r.markUnregistered()
		return nil
	}
	desired, err := r.desired(owner)
	if err != nil {
		return err
	}
	var errs []error
	r.settled = true
	for key, want := range desired {
		errs = append(errs, r.ensure(ctx, key, want, stores[key.kind]))
	}
	for kind, store := range stores {
		for _, obj := range store.List() {
			if u, ok := obj.(*unstructured.Unstructured); ok {
				errs = append(errs, r.removeStale(ctx, kind, u, desired))
			}
		}
	}
	r.surplus.prune(r.bundle.Bundle(), stores)
	if r.settled {
		r.registeredKey = prefix(r.bundle.PathKeys())
	}
	return errors.Join(errs...)
}
