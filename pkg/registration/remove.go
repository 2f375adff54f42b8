package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/pkg/router"
)

// noticeTime is far longer than an API server needs to notice that a configuration was deleted. An API server
// watches the two kinds independently, so it may notice two changes in the other order without a pause.
const noticeTime = 500 * time.Millisecond

const (
	// syncPatience is how long a replica that removes everything waits for a sync before it cancels it.
	syncPatience = time.Second
	// recallTime is how long it waits for the effect of a request that it has canceled. It has little time to leave.
	recallTime = 500 * time.Millisecond
)

// inOrderOfRemoval calls remove for all configurations, the validating ones first: without its mutating half, a service
// would deny what that half would have changed. The mutating half therefore stays if the validating half of the same name does.
func inOrderOfRemoval(ctx context.Context, pause time.Duration, configs map[string][]*unstructured.Unstructured, remove func(context.Context, string, *unstructured.Unstructured) error) error {
	var errs []error
	stays := map[string]bool{}
	for _, kind := range []string{validatingKind, mutatingKind} {
		if kind == mutatingKind && len(configs[validatingKind]) > 0 && len(configs[mutatingKind]) > 0 {
			sleep(ctx, pause)
		}
		for _, u := range configs[kind] {
			if stays[u.GetName()] {
				continue
			}
			err := remove(ctx, kind, u)
			errs, stays[u.GetName()] = append(errs, err), err != nil
		}
	}
	return errors.Join(errs...)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// withdraw removes every configuration of this Postern, because nothing may be registered.
func (r *Registrar) withdraw(ctx context.Context, stores map[string]cache.Store, refusal error) error {
	_, uninstalled := errors.AsType[*uninstalledError](refusal)
	r.metrics.setUninstalled(uninstalled)
	due := r.refused.isDue(refusal)
	if due {
		klog.FromContext(ctx).Info("Not registering", "reason", refusal.Error())
	}
	r.setStatus(refusal)
	configs := map[string][]*unstructured.Unstructured{}
	for kind, store := range stores {
		configs[kind] = objects(store)
	}
	err := inOrderOfRemoval(ctx, r.noticeTime, configs, r.remove)
	r.markUnregistered()
	r.news.take() // The refusal tells it.
	clear(r.repairs)
	// Other versions may have started meanwhile.
	r.had.clear()
	r.fence.takeTurn()
	if due {
		r.tellRefusal(refusal)
	}
	return err
}

// serves reports whether this replica serves every webhook of a registered configuration that calls Postern.
func (r *Registrar) serves(u *unstructured.Unstructured) bool {
	if isCanary(u) {
		return true // Each replica has a path of its own.
	}
	for _, w := range webhooksByName(u.Object) {
		if r.deployment.callsUs(w) && !r.servesPath(calledPath(w)) {
			return false
		}
	}
	return true
}

func (r *Registrar) servesPath(path string) bool {
	for _, s := range r.services {
		if strings.HasSuffix(path, s.Path+router.MutatePath) || strings.HasSuffix(path, s.Path+router.ValidatePath) {
			return true
		}
	}
	return false
}

// isEmptied reports whether a configuration that this replica does not register calls nobody here any more. Others may repair it.
func (r *Registrar) isEmptied(u *unstructured.Unstructured) bool {
	return !isCanary(u) && !slices.Contains(r.keys(), keyOf(u)) && !slices.ContainsFunc(webhookList(u.Object), r.deployment.callsUs)
}

// Leave makes this replica stop registering. With deregister, and if no other replica stays, it removes every
// configuration, so that nothing calls Postern when this replica has ended.
func (r *Registrar) Leave(ctx context.Context, deregister bool) error {
	r.leaving.Store(true)
	if !deregister || !r.joined.Load() {
		return nil // What is registered may belong to others.
	}
	last, err := r.fleet.isLast(ctx)
	if err != nil || !last {
		return err
	}
	// No sync may be on its way that registers again.
	canceled := false
	patience := time.NewTicker(syncPatience)
	defer patience.Stop()
	for !r.mu.TryLock() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for a registration to end: %w", ctx.Err())
		case <-patience.C:
			(*r.cancelSync.Load())()
			canceled = true
		case <-time.After(10 * time.Millisecond):
		}
	}
	defer r.mu.Unlock()
	defer r.tell()
	remove := func() error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error { return r.removeAll(ctx) })
	}
	if err = remove(); err != nil || !canceled {
		return err
	}
	// The API server may make a creation that was canceled nevertheless. Another replica may have started meanwhile.
	sleep(ctx, recallTime)
	if last, err = r.fleet.isLast(ctx); err != nil || !last {
		return err
	}
	return remove()
}

// removeAll removes every configuration, unless others have registered them. A later revision of a Deployment that ends may
// have registered and crashed.
func (r *Registrar) removeAll(ctx context.Context) error {
	configs, err := r.deployment.listManaged(ctx, r.client)
	if err != nil {
		return err
	}
	own := r.fleet.claim()
	v, err := r.fence.look(ctx, own, all(configs))
	if err != nil {
		return err
	}
	ends := false
	if v.yields() && v.rank != foreign && !own.isProcess() {
		if ends, err = r.fence.ends(ctx, own); err != nil {
			return err
		}
	}
	if v.yields() && !ends {
		klog.FromContext(ctx).Info("Not deregistering: the webhooks belong to other replicas")
		return nil
	}
	err = inOrderOfRemoval(ctx, r.noticeTime, configs, r.remove)
	r.markUnregistered()
	r.setStatus(errors.New("the last replica has ended"))
	return err
}
