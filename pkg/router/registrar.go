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
	// FieldManager owns what Postern writes in server-side apply.
	FieldManager = "postern"

	// settleTime gathers events that come together, and bounds how often a
	// configuration that somebody keeps editing is repaired.
	settleTime = 500 * time.Millisecond
	// syncTimeout is for all requests of one sync. An API server that hangs must
	// not keep us from trying again.
	syncTimeout = 30 * time.Second
	// retryTime is how soon a sync that failed is tried again.
	retryTime = 3 * time.Second
	// resyncTime is how often everything is looked at without a reason, and how
	// long a replica leaves the field to a newer one.
	resyncTime = 5 * time.Minute
)

// Bundle is the CA bundle that the API server is to verify us by.
type Bundle interface {
	Bundle() []byte
	// Changed is closed when the bundle has changed.
	Changed() <-chan struct{}
}

// Registrar keeps the webhook configurations of the services registered: it
// applies them once something answers behind them, repairs what others delete or
// edit, and removes those of services that are not enabled any more.
type Registrar struct {
	client     dynamic.Interface
	deployment Deployment
	services   []AdmissionService
	bundle     Bundle
	metrics    *Metrics
	generation generation

	// What follows belongs to the goroutine of Run.
	rival generation
	owned bool
	// exact says that the bundle is to be registered as it is, and no larger.
	exact bool
}

// NewRegistrar returns a registrar for the services. It does nothing before
// Prepare and Run.
func NewRegistrar(client dynamic.Interface, d Deployment, services []AdmissionService, b Bundle, m *Metrics) (*Registrar, error) {
	gen, err := newGeneration(d, services, time.Now())
	if err != nil {
		return nil, err
	}
	return &Registrar{client: client, deployment: d, services: services, bundle: b, metrics: m, generation: gen, exact: true}, nil
}

// resources are the two kinds of configuration.
func resources() map[string]schema.GroupVersionResource {
	gv := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	return map[string]schema.GroupVersionResource{
		"MutatingWebhookConfiguration":   gv.WithResource("mutatingwebhookconfigurations"),
		"ValidatingWebhookConfiguration": gv.WithResource("validatingwebhookconfigurations"),
	}
}

// Prepare removes configurations of services that are not enabled any more. It
// is called before this replica is ready: from then on the API server may send
// it requests for them, and it would answer 404.
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
	return nil
}

// Run registers the services as soon as probe succeeds, and keeps them
// registered until ctx ends. Probe asks whether a request that the API server
// sends would reach us.
func (r *Registrar) Run(ctx context.Context, probe func(context.Context) error) error {
	r.markUnregistered()
	if !waitForProbe(ctx, probe) {
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

// watch starts no informer yet. Its events are all the same to us, but for the
// generation that they show.
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
	wait := time.After(0)
	// The channel first, the bundle later, in sync: then no change falls between
	// them.
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
			changed, r.exact = r.bundle.Changed(), true
			wait = time.After(0)
		case <-resync.C:
			r.forgive()
			wait = time.After(0)
		case <-wait:
			wait, changed = nil, r.bundle.Changed()
			if err := r.sync(ctx, stores); err != nil && ctx.Err() == nil {
				log.Error(err, "Could not register", "retryAfter", retryTime)
				wait = time.After(retryTime)
			}
		}
	}
}

// forgive lets this Postern register again although there was a newer one, which
// may be gone by now. Nobody comes back from being uninstalled.
func (r *Registrar) forgive() {
	r.exact = true
	if !r.rival.uninstalled() {
		r.rival = generation{}
	}
}

// notice remembers the newest rival: a Postern that started later, with other
// services, is the one that a rollout is bringing in, and this one leaves.
func (r *Registrar) notice(log klog.Logger, g generation) {
	if g.newerThan(r.generation) && g.newerThan(r.rival) {
		r.rival = g
		log.Info("A newer Postern registers now", "generation", g.String(), "ours", r.generation.String())
	}
}

// sync makes the registered configurations what they should be.
func (r *Registrar) sync(ctx context.Context, stores map[string]cache.Store) error {
	if r.rival.newerThan(r.generation) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
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
	if err := errors.Join(errs...); err != nil {
		return err
	}
	r.exact = false
	return nil
}
