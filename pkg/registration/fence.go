package registration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/pkg/registration/rollout"
)

const (
	// ClaimAnnotation is on every registered configuration. Its value says in JSON who registered the configuration.
	ClaimAnnotation = "postern.dev/registered-by"
	// ReplacesAnnotation is on a Deployment. Its value is the name of the Deployment whose place it takes while both exist.
	ReplacesAnnotation = "postern.dev/replaces"

	// revisionOfDeployment is the annotation with the newest revision of a Deployment.
	revisionOfDeployment = "deployment.kubernetes.io/revision"
)

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

// claim says who registers a configuration. Replicas that register the same have the same claim, so that they do not
// overwrite each other.
type claim struct {
	// Deployment and UID are those of the Deployment of the replica. They are empty for a process outside of a
	// Deployment.
	Deployment string    `json:"deployment,omitempty"`
	UID        types.UID `json:"uid,omitempty"`
	// Revision is that of the ReplicaSet of the replica.
	Revision int64 `json:"revision,omitempty"`
	// Digest is a digest of everything that the replica registers.
	Digest string `json:"digest"`
}

// claimOf returns the claim of a configuration, and false if it has none. What is not the claim of a Deployment is that of a
// process.
func claimOf(u *unstructured.Unstructured) (claim, bool) {
	text, claimed := u.GetAnnotations()[ClaimAnnotation]
	var c claim
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		c = claim{}
	}
	return c.normal(), claimed
}

// selfOf returns the claim of this replica.
func selfOf(view rollout.View) claim { return claim(view.Self).normal() }

// normal returns the claim of a process for what is not the claim of a Deployment.
func (c claim) normal() claim {
	if c.UID == "" || c.Revision < 1 || len(validation.IsDNS1123Subdomain(c.Deployment)) > 0 {
		return claim{Digest: c.Digest}
	}
	return c
}

func (c claim) text() (string, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encoding a claim: %w", err)
	}
	return string(data), nil
}

func (c claim) isProcess() bool { return c.UID == "" }

func (c claim) String() string {
	if c.isProcess() {
		return "a process outside of a Deployment"
	}
	return fmt.Sprintf("revision %d of Deployment %s", c.Revision, c.Deployment)
}

// fence decides by the claims of the registered configurations whether this replica may write. The Leases of others are
// asked only if there is no claim, and if two replicas of one revision register different webhooks.
type fence struct {
	client    dynamic.Interface
	namespace string

	mu sync.Mutex
	// rival is the claim that this replica yielded to at the last look. It survives the deletion of the configurations.
	rival *claim
	// owner is true if all configurations had the claim of this replica once, and this replica has not yielded since.
	owner bool

	warned sync.Once
}

// rank is what a claim is to this replica.
type rank int

const (
	// lower claims are overwritten.
	lower rank = iota
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
	// leased is true if nobody has claimed the configurations, and the Leases leave them to another replica.
	leased bool
	// superseded is true if the Leases tell of a replica of a higher rank that registers, and may have nothing to register. What
	// is missing may have been removed by that replica, so it must stay away while that lives.
	superseded bool
	// nothing is true if nothing is registered.
	nothing bool
}

func (v verdict) yields() bool { return v.rank != lower || v.leased }

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
func (f *fence) look(ctx context.Context, view rollout.View, configs []*unstructured.Unstructured) (verdict, error) {
	own := selfOf(view)
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
	rival, owner := f.rival, f.owner
	f.mu.Unlock()
	mine := slices.Contains(claims, own)
	only := mine && !unclaimed && len(claims) == 1
	if rival != nil && !slices.Contains(claims, *rival) {
		claims = append(claims, *rival)
	}
	var v verdict
	for _, c := range claims {
		rank, err := f.rank(ctx, view, c, mine, owner)
		if err != nil {
			return verdict{}, err
		}
		if rank > v.rank || rank == v.rank && rank != lower && c.Revision > v.rival.Revision {
			v.rank, v.rival = rank, &c
		}
	}
	if v.rival == nil && !view.Leads {
		// Nothing is above the newest revision, whatever a Lease says.
		newest, err := f.isNewest(ctx, own)
		if err != nil {
			return verdict{}, err
		}
		v.superseded = !newest
		ours := owner || slices.ContainsFunc(claims, func(c claim) bool { return c.UID == own.UID && !own.isProcess() })
		v.leased = unclaimed && (v.superseded || !ours) || known == 0 && v.superseded
	}
	v.nothing = known == 0
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rival, f.owner = v.rival, !v.yields() && (owner || only)
	return v, nil
}

// admit returns an error if this replica must not overwrite a configuration that look has not seen.
func (f *fence) admit(ctx context.Context, view rollout.View, u *unstructured.Unstructured) error {
	c, claimed := claimOf(u)
	if !claimed {
		return nil
	}
	f.mu.Lock()
	owner := f.owner
	f.mu.Unlock()
	rank, err := f.rank(ctx, view, c, owner, owner)
	if err == nil && rank != lower {
		err = fmt.Errorf("%s %s was registered by %s", u.GetKind(), u.GetName(), c)
	}
	return err
}

// rank compares this replica with a claim. mine is true if the claim of this replica is registered too, owner if it was the only
// one before.
func (f *fence) rank(ctx context.Context, view rollout.View, c claim, mine, owner bool) (rank, error) {
	own := selfOf(view)
	switch {
	case c == own:
		return lower, nil
	case c.isProcess() && !own.isProcess():
		d, known, err := f.find(ctx, own.Deployment)
		if err == nil && known && !isThe(d, own) {
			return byLease(view), nil // The Deployment was deleted without its pods.
		}
		return lower, err
	case c.UID != own.UID:
		return f.rankOfAnother(ctx, view, c, mine, owner)
	case c.Revision < own.Revision:
		return lower, nil
	case c.Revision == own.Revision:
		// Two replicas differ, for example because a ConfigMap has changed. The one that started later registers, if it lives.
		if slices.Contains(view.Later, c.Digest) {
			return higher, nil
		}
		return lower, nil
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
func (f *fence) rankOfAnother(ctx context.Context, view rollout.View, c claim, mine, owner bool) (rank, error) {
	own := selfOf(view)
	other, known, err := f.find(ctx, c.Deployment)
	switch {
	case err != nil:
		return lower, err
	case !known:
		return byLease(view), nil
	case !isThe(other, c):
		return lower, nil
	case own.isProcess():
		return foreign, nil
	}
	self, known, err := f.find(ctx, own.Deployment)
	switch {
	case err != nil:
		return lower, err
	case known && !isThe(self, own):
		return higher, nil
	case other.GetAnnotations()[ReplacesAnnotation] == own.Deployment:
		return higher, nil
	case known && self.GetAnnotations()[ReplacesAnnotation] == c.Deployment:
		return lower, nil
	case owner, mine && own.UID < c.UID:
		// The one that was there first stays, and one of two that came at the same moment.
		return lower, nil
	}
	return foreign, nil
}

func byLease(view rollout.View) rank {
	if view.Leads {
		return lower
	}
	return higher
}

// isInForce reports whether everything that is registered has the claim own, or nothing is registered.
func isInForce(configs []*unstructured.Unstructured, own claim) bool {
	return !slices.ContainsFunc(configs, func(u *unstructured.Unstructured) bool {
		c, _ := claimOf(u)
		return c != own && !isCanary(u)
	})
}

// isNewest reports whether this replica is of the newest revision of its Deployment.
func (f *fence) isNewest(ctx context.Context, own claim) (bool, error) {
	if own.isProcess() {
		return false, nil
	}
	d, _, err := f.find(ctx, own.Deployment)
	return err == nil && isThe(d, own) && revisionOf(d) == own.Revision, err
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
