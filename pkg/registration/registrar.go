// Package registration keeps the webhook configurations of AdmissionServices registered with the API server: what is
// desired, which replica writes it, the CA bundles, the canary and the removal.
package registration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/segment"
	"github.com/postern-dev/postern/pkg/router"
)

const (
	// FieldManager is the field manager of Postern in server-side apply.
	FieldManager = "postern"

	// settleTime is how long events are collected before a sync.
	settleTime = 500 * time.Millisecond
	// syncTimeout bounds all requests of one sync, so that a sync is tried again
	// after an API server hangs.
	syncTimeout = 30 * time.Second
	// syncPatience is how long a replica that removes everything waits for its last sync.
	syncPatience = time.Second
	// retryTime is how soon a sync that failed is tried again. It doubles with each
	// failure, up to maxRetryTime.
	retryTime    = time.Second
	maxRetryTime = time.Minute
	// resyncTime is the interval of syncs without an event.
	resyncTime = 5 * time.Minute
	// maxTries is how often in a row a replica may fail to take the registration over from its peers.
	maxTries = 5
	// removalTime is how long a replica that has removed something has to register what it serves, before its peers add that again.
	removalTime = time.Minute
	// unservedTime is how long a replica is not ready because others have registered what it does not serve.
	unservedTime = 30 * time.Second
)

// Registrar keeps the webhook configurations of the services registered. It applies
// them once the webhooks can be reached, repairs them when somebody deletes or
// edits them, and removes the configurations of services that are no longer
// enabled. Of several replicas with different services, those that the fence lets
// write. The others restore what these have registered, when no process of these
// runs any more.
type Registrar struct {
	client     dynamic.Interface
	deployment Deployment
	services   []router.AdmissionService
	bundle     Bundle
	segments   *segment.Set
	fleet      *Fleet
	fence      *fence
	metrics    *Metrics
	// Report, if not nil, is called with the reason for which nothing is registered,
	// from time to time.
	Report func(error)
	// Notify, if not nil, is called with what an administrator should see: the type (corev1.EventTypeNormal or
	// corev1.EventTypeWarning), the reason and the message of an Event. It must not block.
	Notify func(eventType, reason, message string)
	// CanaryPath is the path of the canary that this process serves, and no other.
	CanaryPath string
	// noticeTime is the pause between the removals of the two halves of a service.
	noticeTime time.Duration

	news    news
	had     memory
	status  atomic.Pointer[error]
	leaving atomic.Bool
	// cancelSync cancels the requests of the last sync. It is never nil.
	cancelSync atomic.Pointer[context.CancelFunc]
	// joined is true if Prepare has found that this replica may take part.
	joined atomic.Bool
	// owned is true if the namespace existed once.
	owned   atomic.Bool
	keptOut atomic.Pointer[error]
	// unserved is when Prepare first found something registered that this replica neither serves nor may remove.
	unserved time.Time
	canary   *canary

	// mu is held during a sync. It guards the fields below.
	mu sync.Mutex
	// uninstalled is true if a configuration was deleted by Uninstall.
	uninstalled bool
	// reached is true if the API server can call this replica.
	reached bool
	// leader says who registers, if it was not this replica at the last sync.
	leader string
	// followed is what this replica knows of the registration that it yields to.
	followed followed
	// split is who has registered what, and since when, while this replica yields to another one that has written only a part. registered
	// is nil otherwise.
	split struct {
		registered map[configKey]claim
		since      time.Time
	}
	// at is where and with which bundle the API server calls Postern, in this sync.
	at endpoint
	// placed are the segments that this replica last registered or saw registered. While that is the one to register, the
	// segments are left alone that other replicas register then.
	placed map[configKey]string
	// surplus holds the CAs that stay registered for a while.
	surplus surplus
	// lastCanary is the resource version of the canaries' configuration at the last sync, and canarySince when it was first seen.
	lastCanary  string
	canarySince time.Time
	// repairs tells repairs from changes, and bounds them.
	repairs repairs
	// narrowed is what is known of selectors that others have added.
	narrowed narrowing
	// failures is the number of failed syncs in a row.
	failures int
	// failed is the number of failures in a row of the mutating halves, by the path of the service.
	failed map[string]int
}

// NewRegistrar returns a registrar for the services. It does nothing before
// Prepare and Run.
func NewRegistrar(client dynamic.Interface, d Deployment, services []router.AdmissionService, b Bundle, s *segment.Set, fleet *Fleet, m *Metrics) *Registrar {
	r := &Registrar{
		client: client, deployment: d, services: services, bundle: b, segments: s, fleet: fleet, metrics: m,
		fence: &fence{client: client, namespace: d.Namespace}, surplus: surplus{}, repairs: repairs{}, failed: map[string]int{}, placed: map[configKey]string{}, noticeTime: noticeTime,
	}
	r.canary = &canary{registrar: r}
	r.cancelSync.Store(new(context.CancelFunc(func() {})))
	r.setStatus(errNotReached)
	r.markUnregistered() // A replica that never gets as far as Run is seen in the metrics too.
	return r
}

const (
	mutatingKind   = "MutatingWebhookConfiguration"
	validatingKind = "ValidatingWebhookConfiguration"
)

// resources are the two kinds of configuration.
func resources() map[string]schema.GroupVersionResource {
	gv := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	return map[string]schema.GroupVersionResource{
		mutatingKind:   gv.WithResource("mutatingwebhookconfigurations"),
		validatingKind: gv.WithResource("validatingwebhookconfigurations"),
	}
}

var (
	errNotReached = errors.New("nobody has called this replica yet")
	errNotSeen    = errors.New("the replicas of other versions may not have noticed this one yet")
)

// Status returns nil if the webhooks of this replica, or of the replica that it yields to, are registered. Otherwise
// it returns the reason.
func (r *Registrar) Status() error { return *r.status.Load() }

// KeptOut returns nil, or the reason for which this replica must not be ready: after it was, another Deployment registered.
func (r *Registrar) KeptOut() error {
	if err := r.keptOut.Load(); err != nil {
		return *err
	}
	return nil
}

// HasNamespace reports whether the namespace of Postern exists, or did. A Postern that is called by its URL needs none.
func (r *Registrar) HasNamespace() bool { return r.owned.Load() }

func (r *Registrar) setStatus(err error) { r.status.Store(&err) }

// Prepare removes the configurations of services that this replica does not serve.
// It is called before this replica is ready: the API server sends requests to a
// ready replica, and the replica would answer requests for these services with 404.
// A replica unlike those that have registered removes nothing before the API server
// has called it, so that a rollout to replicas that cannot be called stops at the
// first, and before the others can know of it. While the webhooks are those of another living Deployment, Prepare returns an
// error.
func (r *Registrar) Prepare(ctx context.Context) error {
	defer r.tell()
	if err := r.fleet.Look(ctx); err != nil {
		return err
	}
	configs, err := r.survey(ctx)
	if err != nil {
		return err
	}
	if r.deployment.URL == "" && !isInForce(all(configs), r.fleet.claim()) {
		if err := r.awaitCall(ctx); err != nil {
			return err
		}
		if !r.fleet.isSeen() {
			return errNotSeen
		}
		// It may have taken long.
		if configs, err = r.survey(ctx); err != nil {
			return err
		}
	}
	r.joined.Store(true)
	own := r.fleet.claim()
	v, err := r.fence.look(ctx, own, all(configs))
	if err != nil {
		return err
	}
	for kind := range configs {
		configs[kind] = slices.DeleteFunc(configs[kind], func(u *unstructured.Unstructured) bool {
			return r.serves(u) && (v.yields() || !r.isEmptied(u))
		})
	}
	if left := all(configs); len(left) > 0 && !v.yields() {
		if err := inOrderOfRemoval(ctx, r.noticeTime, configs, r.retire(own)); err != nil {
			return err
		}
	} else if len(left) > 0 {
		// This replica restarts in the middle of a rollout, which soon ends, or was not a success.
		err := fmt.Errorf("%s %s is not served by this replica, and was registered by replicas of a higher rank", left[0].GetKind(), left[0].GetName())
		if r.unserved.IsZero() {
			r.unserved = time.Now()
		}
		if time.Since(r.unserved) < unservedTime {
			return err
		}
		klog.FromContext(ctx).Error(err, "Serving the rest")
	}
	return r.introduce(ctx)
}

// survey returns what is registered, unless this replica must not disturb those that registered it.
func (r *Registrar) survey(ctx context.Context) (map[string][]*unstructured.Unstructured, error) {
	configs, err := r.deployment.listManaged(ctx, r.client)
	if err != nil {
		return nil, err
	}
	r.segments.Registered(r.deployment.registeredSegments(all(configs)...))
	own := r.fleet.claim()
	v, err := r.fence.look(ctx, own, all(configs))
	if err != nil {
		return nil, err
	}
	return configs, v.refusal(own)
}

// awaitCall returns nil once the API server has called this replica by the Service for canaries. Where nothing may be registered,
// the replica need not be called to remove everything.
func (r *Registrar) awaitCall(ctx context.Context) error {
	r.mu.Lock()
	_, refusal, err := r.standing(ctx)
	r.mu.Unlock()
	if err != nil || refusal != nil {
		return err
	}
	return r.canary.await(ctx, "")
}

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
	if err == nil || ctx.Err() != nil {
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
		r.mu.Lock()
		defer r.mu.Unlock()
		r.uninstalled = true
	}
}

// sync makes the registered configurations equal to the desired ones. It returns the
// time after which it must be repeated, or 0.
func (r *Registrar) sync(ctx context.Context, stores map[string]cache.Store) (again time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelSync.Store(&cancel)
	defer r.tell()
	missing := r.hold(configurations(stores))
	owner, refusal, err := r.standing(ctx)
	if err != nil {
		r.startAgain()
		return 0, err
	}
	if errors.Is(refusal, errNamespaceGone) {
		return 0, r.withdraw(ctx, stores, refusal)
	}
	own := r.fleet.claim()
	v, err := r.fence.look(ctx, own, configurations(stores))
	if err != nil {
		return 0, err
	}
	if foreign := v.refusal(own); foreign != nil {
		r.standAside(ctx, own, foreign)
		return rivalInterval, nil
	}
	r.keptOut.Store(nil)
	if refusal != nil {
		return 0, r.withdraw(ctx, stores, refusal)
	}
	if r.leaving.Load() {
		return 0, nil
	}
	for _, u := range configurations(stores) {
		r.had.note(keyOf(u), wasRegistered)
	}
	if v.only {
		r.had.forgive(removalTime) // The peer has not gone on to register.
	}
	turn := !v.yields()
	if r.reached && !turn {
		if turn, again, err = r.yield(ctx, v, own, stores); err != nil {
			return 0, err
		}
	}
	if r.reached && turn {
		return r.register(ctx, own, owner, stores)
	}
	if len(missing) == 0 {
		return again, nil
	}
	return again, r.introduce(ctx)
}

// register applies the configurations that were registered already, and the others unless replicas of another version may
// run. It removes what this replica does not serve. What is seen of other replicas thus only delays what is added.
func (r *Registrar) register(ctx context.Context, own claim, owner *metav1.OwnerReference, stores map[string]cache.Store) (again time.Duration, err error) {
	r.leader, r.followed, r.split.registered = "", followed{}, nil
	r.at = r.endpoint()
	desired, err := r.desired(owner, own, r.at)
	if err != nil {
		return 0, err
	}
	var errs []error
	var waiting error
	// The mutating halves are first: the validating halves deny what those would have changed.
	for _, kind := range []string{mutatingKind, validatingKind} {
		for _, s := range r.services {
			for _, key := range r.deployment.keys(s) {
				if key.kind != kind || kind == validatingKind && r.waitsForMutating(s.Path, key, own, stores[kind]) {
					continue
				}
				after, err := r.ensure(ctx, key, desired[key], own, stores[kind])
				if wait, ok := errors.AsType[*mustWait](err); ok {
					waiting = cmp.Or[error](waiting, wait)
					// Nobody tells when a look is too old. To wait is no failure, for which the validating half would wait.
					after, err = lookInterval, nil
				}
				again, errs = sooner(again, after), append(errs, err)
				if kind == mutatingKind {
					r.mutatingFailed(s.Path, err)
				}
			}
		}
	}
	err = errors.Join(errs...)
	conflict := false
	if _, late := errors.AsType[*claimedError](err); !late { // What looks stale may have been registered by the same replica.
		after, failed := r.removeStale(ctx, own, desired, stores)
		again, conflict, err = sooner(again, after), after > 0, errors.Join(err, failed)
	}
	r.surplus.prune(r.bundle.Bundle(), stores)
	later := r.reportNarrowed(ctx, desired, stores)
	if err == nil && !conflict || r.failures >= maxTries {
		r.fence.endTurn()
	}
	if err != nil {
		return 0, err
	}
	r.setStatus(waiting)
	return sooner(again, later), nil
}

// removeStale removes what is registered and not desired. It returns the time after which it must be repeated, or 0.
func (r *Registrar) removeStale(ctx context.Context, own claim, desired map[configKey]*unstructured.Unstructured, stores map[string]cache.Store) (again time.Duration, err error) {
	stale := map[string][]*unstructured.Unstructured{}
	for _, u := range configurations(stores) {
		if desired[keyOf(u)] == nil && r.isStale(u) {
			stale[u.GetKind()] = append(stale[u.GetKind()], u)
		}
	}
	var errs []error
	_ = inOrderOfRemoval(ctx, r.noticeTime, stale, func(ctx context.Context, kind string, u *unstructured.Unstructured) error {
		err := r.retire(own)(ctx, kind, u)
		if apierrors.IsConflict(err) {
			again = retryTime // The event with the change may come sooner.
		} else {
			errs = append(errs, err)
		}
		return err
	})
	return again, errors.Join(errs...)
}

// mutatingFailed counts the failures in a row of the mutating half of a service.
func (r *Registrar) mutatingFailed(service string, err error) {
	if err == nil {
		delete(r.failed, service)
	} else {
		r.failed[service]++
	}
}

// waitsForMutating reports whether a validating half is not written yet, because the mutating half of the service could not be. It is
// repaired nevertheless, and written after maxTries failures, so that policies fail closed.
func (r *Registrar) waitsForMutating(service string, validating configKey, own claim, store cache.Store) bool {
	if n := r.failed[service]; n == 0 || n > maxTries {
		return false
	}
	have, exists := stored(store, validating.name)
	if !exists {
		return true
	}
	c, _ := claimOf(have)
	return c != own
}

// sooner returns the shorter of two times of which 0 means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
