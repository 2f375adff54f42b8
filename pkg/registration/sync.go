package registration

import (
	"cmp"
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

const (
	// maxTries is how often in a row a replica may fail to take the registration over from its peers.
	maxTries = 5
	// removalTime is how long a replica that has removed something has to register what it serves, before its peers add that again.
	removalTime = time.Minute
)

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
	r.endRefusal()
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

// ensure applies a configuration, unless the stored configuration already has every
// field of it. Server-side apply keeps the fields of other owners. A configuration that
// is not there is added only if mayAdd lets it. It returns
// the time after which it must be repeated, or 0.
func (r *Registrar) ensure(ctx context.Context, key configKey, want *unstructured.Unstructured, own claim, store cache.Store) (again time.Duration, err error) {
	defer func() {
		if err != nil {
			r.metrics.setRegistered(key.kind, key.name, false)
		}
	}()
	have, cached := stored(store, key.name)
	if cached {
		again, err = r.write(ctx, key, want.DeepCopy(), have)
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			return again, err
		}
	}
	// Somebody was faster, the cache is late, or the configuration has lost the label by which the cache selects.
	have, exists, err := r.own(ctx, key)
	if err != nil {
		return 0, err
	}
	if !exists {
		if err := r.mayAdd(key, cached); err != nil {
			return 0, err
		}
		return r.write(ctx, key, want, nil)
	}
	if err := r.fence.admit(ctx, own, have); err != nil {
		return 0, err
	}
	return r.write(ctx, key, want, have)
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

// isStale reports whether a configuration that is not desired must be removed. Replicas of which nobody knows yet may need the
// canaries.
func (r *Registrar) isStale(u *unstructured.Unstructured) bool {
	if !isCanary(u) {
		return true
	}
	if v := u.GetResourceVersion(); r.lastCanary != v {
		r.lastCanary, r.canarySince = v, time.Now()
	}
	return time.Since(r.canarySince) >= abandonedTime
}

// sooner returns the shorter of two times of which 0 means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
