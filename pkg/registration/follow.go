package registration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// goneTime is how long those that register have to restore a configuration before a replica that yields says that it
	// is gone.
	goneTime = 10 * time.Second
	// rivalInterval is how often a replica looks whether another Deployment still exists.
	rivalInterval = 10 * time.Second
)

// followed is what a replica knows of the registration that it yields to.
type followed struct {
	claim claim
	// last holds the configurations as they were last seen.
	last map[configKey]*unstructured.Unstructured
	// since holds when a configuration was first missed.
	since map[configKey]time.Time
}

// standAside leaves everything to another Deployment.
func (r *Registrar) standAside(ctx context.Context, own claim, foreign error) {
	if r.leader != foreign.Error() {
		r.leader = foreign.Error()
		klog.FromContext(ctx).Info("Warning: not registering", "reason", foreign.Error())
		r.notify(corev1.EventTypeWarning, EventNotRegistered, "Replicas do not register: "+foreign.Error())
	}
	r.endRefusal() // The webhooks of the other one are there.
	r.followed, r.split.registered = followed{}, nil
	if !own.isProcess() { // No Service of a Deployment leads to a process.
		r.keptOut.Store(&foreign)
	}
	r.markUnregistered()
	r.setStatus(foreign)
}

// yield leaves the registration to other replicas, and watches what they have registered. It returns true if this
// replica must register nevertheless, and otherwise the time after which it must look again, or 0.
func (r *Registrar) yield(ctx context.Context, v verdict, own claim, stores map[string]cache.Store) (turn bool, again time.Duration, err error) {
	r.tellLeader(ctx, *v.rival, own)
	r.forgetNarrowed()
	for _, key := range r.keys() {
		if _, exists := stored(stores[key.kind], key.name); exists {
			r.metrics.setRegistered(key.kind, key.name, true)
		} else if r.followed.last[key] == nil {
			r.metrics.forget(key.kind, key.name)
		}
	}
	var left time.Duration
	if !v.split {
		r.split.registered = nil
	} else if left = r.waitsForRest(own, *v.rival, configurations(stores)); left <= 0 {
		r.takeTurn()
		return true, 0, nil
	}
	turn, again, err = r.follow(ctx, *v.rival, own, stores)
	again = sooner(again, left)
	if !turn && err == nil && v.nothing && len(r.followed.last) == 0 {
		r.markUnregistered()
		r.setStatus(fmt.Errorf("nothing is registered, which is left to %s", v.rival))
	}
	return turn, again, err
}

// waitsForRest returns how long a rival that has written some of the configurations still has to go on. If two have overwritten each
// other at the same moment, both wait, and one of them longer.
func (r *Registrar) waitsForRest(own, rival claim, configs []*unstructured.Unstructured) time.Duration {
	registered := map[configKey]claim{}
	for _, u := range configs {
		if !isCanary(u) {
			registered[keyOf(u)], _ = claimOf(u)
		}
	}
	if !maps.Equal(registered, r.split.registered) {
		r.split.registered, r.split.since = registered, time.Now()
	}
	enough := goneTime
	if compare(own, rival) < 0 {
		enough = 2 * goneTime
	}
	return enough - time.Since(r.split.since)
}

// takeTurn lets this replica register at once.
func (r *Registrar) takeTurn() {
	r.fence.takeTurn()
	r.had.forgive(0)
}

// startAgain measures anew how long others do nothing: an API server that is away keeps them too.
func (r *Registrar) startAgain() {
	r.split.registered = nil
	clear(r.followed.since)
}

func (r *Registrar) tellLeader(ctx context.Context, rival, own claim) {
	leader := rival.String() + " " + rival.Digest
	if r.leader == leader {
		return
	}
	r.leader = leader
	klog.FromContext(ctx).Info("Another replica registers", "replica", leader)
	if !own.isProcess() && rival.isPeerOf(own) {
		r.notify(corev1.EventTypeWarning, EventDiffers, fmt.Sprintf("Replicas of revision %d register different webhooks, and those that started last prevail. "+
			"Restart all replicas, so that they have the same configuration: kubectl -n %s rollout restart deployment/%s", own.Revision, r.deployment.Namespace, own.Deployment))
	}
}

// follow watches the configurations while the replicas of a claim register. It reports one that was deleted and not restored in
// time. It restores it itself if no process of another version runs, which would. A rival of the same revision may be gone too.
func (r *Registrar) follow(ctx context.Context, rival, own claim, stores map[string]cache.Store) (turn bool, again time.Duration, err error) {
	if r.followed.claim != rival || r.followed.last == nil {
		r.followed = followed{claim: rival, last: map[configKey]*unstructured.Unstructured{}, since: map[configKey]time.Time{}}
	}
	f, now := r.followed, time.Now()
	for _, u := range configurations(stores) {
		if !isCanary(u) {
			f.last[keyOf(u)] = u
		}
	}
	var gone error
	var errs []error
	for key := range f.last {
		if r.had.of(key) != wasRegistered {
			delete(f.last, key) // Another replica has removed it.
			delete(f.since, key)
			continue
		}
		if _, exists := stored(stores[key.kind], key.name); exists {
			delete(f.since, key)
			r.metrics.setRegistered(key.kind, key.name, true)
			continue
		}
		since, known := f.since[key]
		if !known {
			since, f.since[key] = now, now
		}
		left := goneTime - now.Sub(since)
		if left > 0 {
			again = max(again, left)
			continue
		}
		again = goneTime
		r.metrics.setRegistered(key.kind, key.name, false)
		gone = cmp.Or(gone, fmt.Errorf("%s %s, which %s registered, was deleted", key.kind, key.name, rival))
		if rival.isPeerOf(own) {
			r.takeTurn()
			return true, 0, nil
		}
		if rival.UID == own.UID && r.fleet.isAlone() {
			f.since[key] = now // The next attempt waits as long, should somebody delete it again.
			errs = append(errs, r.restore(ctx, key))
		}
	}
	r.setStatus(gone)
	return false, again, errors.Join(errs...)
}

// restore applies a configuration as it was last seen. Whether that was changed by somebody before cannot be told.
func (r *Registrar) restore(ctx context.Context, key configKey) error {
	last := r.followed.last[key]
	want := &unstructured.Unstructured{Object: map[string]any{"apiVersion": last.GetAPIVersion(), "kind": last.GetKind()}}
	want.SetName(last.GetName())
	want.SetLabels(map[string]string{ManagedByLabel: ManagedBy, NamespaceLabel: r.deployment.Namespace})
	want.SetAnnotations(map[string]string{ClaimAnnotation: last.GetAnnotations()[ClaimAnnotation]})
	want.SetOwnerReferences(last.GetOwnerReferences())
	if webhooks, found, _ := unstructured.NestedSlice(last.Object, "webhooks"); found {
		want.Object["webhooks"] = webhooks
	}
	if _, exists, err := r.own(ctx, key); err != nil || exists {
		return err // The cache is late.
	}
	if _, err := r.apply(ctx, key, want); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Restored what other replicas have registered", "kind", key.kind, "name", key.name, "registeredBy", r.followed.claim.String())
	r.news.add(EventRepaired, key.kind, key.name)
	return nil
}
