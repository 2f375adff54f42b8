package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
)

// unservedTime is how long a replica is not ready because others have registered what it does not serve.
const unservedTime = 30 * time.Second

var errNotSeen = errors.New("the replicas of other versions may not have noticed this one yet")

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
	_, refusal, err := r.standing(ctx)
	if err != nil || refusal != nil {
		return err
	}
	return r.canary.await(ctx, "")
}
