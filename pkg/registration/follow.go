package registration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/pkg/registration/rollout"
)

const (
	// goneTime is how long those that register have to restore a configuration before a replica that yields says that it
	// is gone.
	goneTime = 10 * time.Second
	// rivalInterval is how often a replica looks whether another Deployment still exists.
	rivalInterval = 10 * time.Second
)

// followed is what a replica knows of the registration that it yields to. A claim stands for one content, so a configuration
// that differs from what was seen first with its claim was changed by somebody else.
type followed struct {
	claim claim
	// last holds the configurations as they were last seen as registered.
	last map[configKey]*unstructured.Unstructured
	// since holds when a configuration was first found missing or changed.
	since map[configKey]time.Time
}

// standAside leaves everything to another Deployment.
func (r *Registrar) standAside(ctx context.Context, foreign error) {
	if r.leader != foreign.Error() {
		r.leader = foreign.Error()
		klog.FromContext(ctx).Info("Warning: not registering", "reason", foreign.Error())
		r.notify(corev1.EventTypeWarning, EventNotRegistered, "Replicas do not register: "+foreign.Error())
	}
	r.followed = followed{}
	r.markUnregistered()
	r.setStatus(foreign)
}

// yield leaves the registration to other replicas, and watches what they have registered. It returns the time after which
// it must look again, or 0.
func (r *Registrar) yield(ctx context.Context, v verdict, view rollout.View, stores map[string]cache.Store) (again time.Duration, err error) {
	r.tellLeader(ctx, v, view)
	for _, s := range r.services {
		for _, key := range r.deployment.keys(s) {
			if _, exists := stored(stores[key.kind], key.name); exists {
				r.metrics.setRegistered(key.kind, key.name, true)
			} else if r.followed.last[key] == nil {
				r.metrics.forget(key.kind, key.name)
			}
		}
	}
	if v.rival == nil {
		r.followed = followed{}
		r.setStatus(nil)
		return 0, nil
	}
	return r.follow(ctx, *v.rival, len(view.Higher) == 0, stores)
}

func (r *Registrar) tellLeader(ctx context.Context, v verdict, view rollout.View) {
	leader, own := view.Leader, claim(view.Self)
	if v.rival != nil {
		leader = v.rival.String() + " " + v.rival.Digest
	}
	if r.leader == leader {
		return
	}
	r.leader = leader
	klog.FromContext(ctx).Info("Another replica registers", "replica", leader)
	if v.rival != nil && !own.isProcess() && v.rival.UID == own.UID && v.rival.Revision == own.Revision {
		r.notify(corev1.EventTypeWarning, EventDiffers, fmt.Sprintf("Replicas of revision %d register different webhooks, and those that started last prevail. "+
			"Restart all replicas, so that they have the same configuration: kubectl -n %s rollout restart deployment/%s", own.Revision, r.deployment.Namespace, own.Deployment))
	}
}

// follow watches the configurations of a claim. It reports one that was deleted or changed and not restored in time. alone is
// true if no replica of a higher rank lives, which would restore it.
func (r *Registrar) follow(ctx context.Context, rival claim, alone bool, stores map[string]cache.Store) (again time.Duration, err error) {
	if r.followed.claim != rival {
		r.followed = followed{claim: rival, last: map[configKey]*unstructured.Unstructured{}, since: map[configKey]time.Time{}}
	}
	f, now := r.followed, time.Now()
	for kind, store := range stores {
		for _, u := range objects(store) {
			if c, _ := claimOf(u); c == rival && !isCanary(u) && f.last[configKey{kind, u.GetName()}] == nil {
				f.last[configKey{kind, u.GetName()}] = u
			}
		}
	}
	var gone error
	var errs []error
	for key, last := range f.last {
		if u, exists := stored(stores[key.kind], key.name); exists && r.isUnchanged(u, last) {
			f.last[key] = u // The CAs and the path may have changed.
			delete(f.since, key)
			r.metrics.setRegistered(key.kind, key.name, true)
			continue
		}
		since, known := f.since[key]
		if !known {
			since = now
			f.since[key] = now
		}
		again = goneTime
		if left := goneTime - now.Sub(since); left > 0 {
			again = min(again, left)
			continue
		}
		r.metrics.setRegistered(key.kind, key.name, false)
		gone = cmp.Or(gone, fmt.Errorf("%s %s, which %s registered, was deleted or changed", key.kind, key.name, rival))
		if alone {
			errs = append(errs, r.restore(ctx, key))
		}
	}
	r.setStatus(gone)
	return again, errors.Join(errs...)
}

// isUnchanged reports whether a configuration has all that other replicas registered, apart from the CAs and the path.
func (r *Registrar) isUnchanged(have, last *unstructured.Unstructured) bool {
	want := registration(last)
	registered := webhooksByName(have.Object)
	for name, w := range webhooksByName(want) {
		if r.deployment.callsUs(w) && !r.deployment.callsUs(registered[name]) {
			return false
		}
		delete(asMap(w), "clientConfig")
	}
	return covers(have.Object, want)
}

// registration returns a copy of what Postern sets in a configuration.
func registration(u *unstructured.Unstructured) map[string]any {
	out := &unstructured.Unstructured{Object: map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind()}}
	out.SetName(u.GetName())
	out.SetLabels(map[string]string{ManagedByLabel: u.GetLabels()[ManagedByLabel], NamespaceLabel: u.GetLabels()[NamespaceLabel]})
	out.SetAnnotations(map[string]string{ClaimAnnotation: u.GetAnnotations()[ClaimAnnotation]})
	out.SetOwnerReferences(u.GetOwnerReferences())
	if webhooks, found, _ := unstructured.NestedSlice(u.Object, "webhooks"); found {
		out.Object["webhooks"] = webhooks
	}
	return out.Object
}

// restore applies a configuration as it was last seen.
func (r *Registrar) restore(ctx context.Context, key configKey) error {
	want := &unstructured.Unstructured{Object: registration(r.followed.last[key])}
	have, exists, err := r.own(ctx, key)
	if err != nil {
		return err
	}
	if exists {
		if c, claimed := claimOf(have); claimed && c != r.followed.claim {
			return nil
		}
		want.SetResourceVersion(have.GetResourceVersion())
	}
	if err := r.apply(ctx, key, want); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Restored what other replicas have registered", "kind", key.kind, "name", key.name, "registeredBy", r.followed.claim.String())
	r.news.add(EventRepaired, key.kind, key.name)
	return nil
}
