package registration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
)

const (
	// ReplacesAnnotation is on a Deployment. Its value is the name of the Deployment whose place it takes while both exist.
	ReplacesAnnotation = "postern.dev/replaces"

	// revisionOfDeployment is the annotation with the newest revision of a Deployment.
	revisionOfDeployment = "deployment.kubernetes.io/revision"
)

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

// fence decides by the claims of the registered configurations whether this replica may write.
type fence struct {
	client    dynamic.Interface
	namespace string

	mu sync.Mutex
	// rival is the claim that this replica yielded to at the last look. It survives the deletion of the configurations.
	rival *claim
	// owner is true if all configurations had the claim of this replica once, and this replica has not yielded since.
	owner bool
	// turned is true if this replica has registered all that it may, has failed to maxTries times, or if all configurations had its claim.
	// Of replicas of which none is above the other, each takes the registration over once, so that they do not overwrite each other for
	// ever.
	turned bool

	warned sync.Once
}

// rank is what a claim is to this replica.
type rank int

const (
	// lower claims are overwritten.
	lower rank = iota
	// later claims are those of replicas of which none is above the other, after this one has had its turn: they started later, wrote at
	// the same moment, or had another turn.
	later
	// higher claims are those of replicas that this replica leaves the registration to, as in a rollout.
	higher
	// foreign claims are those of another living Deployment, which this replica must not disturb.
	foreign
)

// verdict is what a look at the configurations tells.
type verdict struct {
	// rival is the highest claim that this replica yields to. It is nil if there is none.
	rival *claim
	rank  rank
	// nothing is true if nothing is registered. only is true if all that is registered has the claim of this replica. split is true if
	// the rival is later, and the claim of this replica is registered too.
	nothing, only, split bool
}

func (v verdict) yields() bool { return v.rank != lower }

// refusal returns the reason for which this replica does not take part at all, or nil.
func (v verdict) refusal(own claim) error {
	switch {
	case v.rank != foreign:
		return nil
	case own.isProcess():
		return fmt.Errorf("the webhooks are registered by Deployment %s, and this is none of its pods, which tell their names by POD_NAME: delete it, or use another --webhook-namespace", v.rival.Deployment)
	}
	return fmt.Errorf("the webhooks are registered by Deployment %[1]s: delete it, use another --webhook-namespace, or annotate Deployment %[2]s with %[3]s=%[1]s to take its place",
		v.rival.Deployment, own.Deployment, ReplacesAnnotation)
}

// look compares this replica with the claims of all configurations of this Postern.
func (f *fence) look(ctx context.Context, own claim, configs []*unstructured.Unstructured) (verdict, error) {
	var claims []claim
	known, unclaimed := 0, false
	for _, u := range configs {
		if isCanary(u) {
			continue
		}
		known++
		if c, claimed := claimOf(u); !claimed {
			unclaimed = true
		} else if !slices.Contains(claims, c) {
			claims = append(claims, c)
		}
	}
	f.mu.Lock() // It is not held during the requests.
	rival, s := f.rival, self{own, slices.Contains(claims, own), f.owner, f.turned}
	f.mu.Unlock()
	v := verdict{nothing: known == 0, only: s.registered && !unclaimed && len(claims) == 1}
	now := len(claims)
	if rival != nil && !slices.Contains(claims, *rival) {
		claims = append(claims, *rival)
	}
	for i, c := range claims {
		rank, err := f.rank(ctx, s, c)
		if err != nil {
			return verdict{}, err
		}
		if rank == later && i >= now && (v.only || v.rank == later) {
			continue // Replicas that started later still have overwritten it.
		}
		if rank > v.rank || rank == v.rank && rank != lower && compare(c, *v.rival) > 0 {
			v.rank, v.rival = rank, &c
		}
	}
	v.split = v.rank == later && s.registered
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rival, f.owner, f.turned = v.rival, !v.yields() && (s.owner || v.only), f.turned || v.only
	return v, nil
}

// endTurn says that this replica has registered all that it may.
func (f *fence) endTurn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turned = true
}

// takeTurn lets this replica take the registration over once more, as if it had just started.
func (f *fence) takeTurn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rival, f.turned = nil, false
}

// claimedError says that a configuration must not be overwritten.
type claimedError struct {
	kind, name string
	claim      claim
}

func (e *claimedError) Error() string {
	return fmt.Sprintf("%s %s was registered by %s", e.kind, e.name, e.claim)
}

// admit returns a *claimedError if this replica must not overwrite a configuration that look has not seen.
func (f *fence) admit(ctx context.Context, own claim, u *unstructured.Unstructured) error {
	c, claimed := claimOf(u)
	if !claimed {
		return nil
	}
	f.mu.Lock()
	s := self{own, false, f.owner, f.turned}
	f.mu.Unlock()
	rank, err := f.rank(ctx, s, c)
	if err == nil && rank != lower {
		err = &claimedError{u.GetKind(), u.GetName(), c}
	}
	return err
}

// self is what this replica knows of itself when it compares itself with a claim.
type self struct {
	claim

	// registered is true if its claim is registered too. owner and turned are those of the fence.
	registered, owner, turned bool
}

// rank compares this replica with a claim.
func (f *fence) rank(ctx context.Context, own self, c claim) (rank, error) {
	switch {
	case c == own.claim:
		return lower, nil
	case c.isProcess() && !own.isProcess():
		d, known, err := f.find(ctx, own.Deployment)
		if err == nil && known && !isThe(d, own.claim) {
			return own.takesTurns(), nil // The Deployment was deleted without its pods.
		}
		return lower, err
	case c.UID != own.UID:
		return f.rankOfAnother(ctx, own, c)
	case c.Revision < own.Revision:
		return lower, nil
	case c.Revision == own.Revision:
		// Two replicas differ, for example because a ConfigMap has changed.
		return own.takesTurns(), nil
	}
	d, known, err := f.find(ctx, c.Deployment)
	if err != nil {
		return lower, err
	}
	if known && isThe(d, c) && c.Revision > revisionOf(d) {
		return lower, nil // The Deployment has no such revision, so somebody made it up.
	}
	return higher, nil
}

// rankOfAnother compares this replica with the claim of another Deployment.
func (f *fence) rankOfAnother(ctx context.Context, own self, c claim) (rank, error) {
	other, known, err := f.find(ctx, c.Deployment)
	switch {
	case err != nil:
		return lower, err
	case !known:
		return own.takesTurns(), nil
	case !isThe(other, c):
		return lower, nil
	case own.isProcess():
		return foreign, nil
	}
	d, known, err := f.find(ctx, own.Deployment)
	switch {
	case err != nil:
		return lower, err
	case known && !isThe(d, own.claim):
		return higher, nil
	case other.GetAnnotations()[ReplacesAnnotation] == own.Deployment:
		return higher, nil
	case known && d.GetAnnotations()[ReplacesAnnotation] == c.Deployment:
		return lower, nil
	case own.owner, own.registered && own.UID < c.UID:
		// The one that was there first stays, and one of two that came at the same moment.
		return lower, nil
	}
	return foreign, nil
}

// takesTurns decides between replicas of which none is above the other: the one that started last registers.
func (own self) takesTurns() rank {
	if own.turned {
		return later
	}
	return lower
}

// ends reports whether the Deployment of this replica was deleted or has no replicas any more.
func (f *fence) ends(ctx context.Context, own claim) (bool, error) {
	d, known, err := f.find(ctx, own.Deployment)
	if err != nil || !known {
		return false, err
	}
	if !isThe(d, own) || d.GetDeletionTimestamp() != nil {
		return true, nil
	}
	replicas, found, err := unstructured.NestedInt64(d.Object, "spec", "replicas")
	return err == nil && found && replicas == 0, nil
}

// find returns a Deployment, or nil if it does not exist. known is false if this Postern may not read it.
func (f *fence) find(ctx context.Context, name string) (d *unstructured.Unstructured, known bool, err error) {
	d, err = f.client.Resource(deployments).Namespace(f.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, true, nil
	case apierrors.IsForbidden(err):
		f.warned.Do(func() {
			klog.FromContext(ctx).Info("Warning: a Deployment cannot be read, so it is not known whether it still registers", "deployment", klog.KRef(f.namespace, name), "err", err)
		})
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("reading Deployment %s/%s: %w", f.namespace, name, err)
	}
	return d, true, nil
}

// isThe reports whether d, which may be nil, is the Deployment of a claim. One that is terminating still is.
func isThe(d *unstructured.Unstructured, c claim) bool { return d != nil && d.GetUID() == c.UID }

func revisionOf(d *unstructured.Unstructured) int64 {
	revision, err := strconv.ParseInt(d.GetAnnotations()[revisionOfDeployment], 10, 64)
	if err != nil {
		return 0
	}
	return revision
}
