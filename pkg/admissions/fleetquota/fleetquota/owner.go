package fleetquota

import (
	"context"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/internal/authorization"
	"github.com/postern-dev/postern/internal/fleetquota/workload"
	"github.com/postern-dev/postern/pkg/admit"
)

// isCovered reports whether the usage of the owner includes that of the object. Only a user who may update the status
// of the owner may make an object its dependent, or enlarge a dependent. Controllers may, and users of namespaces may
// not.
//
// released is true if an owner that is not being deleted covered the object, and no owner covers it any more. Such an
// object is charged like a new one, whoever releases it, because the controller of the owner creates another one in its
// place.
func (p *plugin) isCovered(ctx context.Context, r *admit.Request, obj, old runtime.Object, grows bool) (free, released bool, err error) {
	owner, kind, err := p.ownerOf(obj)
	if err != nil {
		return false, false, err
	}
	was, wasKind, err := p.ownerOf(old)
	if err != nil {
		return false, false, err
	}
	changed := (owner == nil) != (was == nil) || owner != nil && owner.UID != was.UID
	if (old == nil || !changed) && owner != nil && isMaker(r, owner) {
		// The match conditions also exempt it: the next count includes the object until it is deleted.
		return true, false, nil
	}
	covers := false
	if owner != nil {
		if covers, err = p.census.Covers(ctx, kind, r.Namespace, owner); err != nil {
			return false, false, err
		}
	}
	switch {
	case !covers && changed && was != nil:
		released, err = p.census.Keeps(ctx, wasKind, r.Namespace, was)
		return false, released, err
	case !covers || !changed && !grows:
		return covers, false, nil
	}
	switch controls, err := p.controls(ctx, r, kind, owner); {
	case err != nil:
		return false, false, err
	case !controls:
		return false, false, admit.Forbidden(r, fmt.Errorf("fleet quotas count %s %q with all its pods, so only its controller may add or enlarge objects that it owns: "+
			"user %q cannot update %s/status", kind.Kind, owner.Name, r.UserInfo.Username, kind.GroupResource()))
	}
	return true, false, nil
}

func (p *plugin) ownerOf(obj runtime.Object) (*metav1.OwnerReference, *workload.Kind, error) {
	if obj == nil {
		return nil, nil, nil
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the metadata of the object: %w", err)
	}
	owner, kind := p.kinds.Owner(m)
	return owner, kind, nil
}

// controls reports whether the user is the controller of Kubernetes that creates such objects for the owner, or may
// update the status of the owner.
func (p *plugin) controls(ctx context.Context, r *admit.Request, kind *workload.Kind, owner *metav1.OwnerReference) (bool, error) {
	if isMaker(r, owner) {
		return true, nil
	}
	d, err := p.authorize(ctx, authorization.ReviewFor(r.UserInfo, &authorizationv1.ResourceAttributes{
		Verb: "update", Group: kind.Group, Version: kind.Version, Resource: kind.Resource, Subresource: "status", Namespace: r.Namespace, Name: owner.Name,
	}))
	return d.Allowed, err
}

// isMaker reports whether the user is the controller of Kubernetes that creates such objects for the owner.
func isMaker(r *admit.Request, owner *metav1.OwnerReference) bool {
	return slices.ContainsFunc(makers(r.Resource.Resource), func(m maker) bool {
		return m.apiVersion == owner.APIVersion && m.kind == owner.Kind && (r.UserInfo.Username == controllerUser+m.controller || r.UserInfo.Username == sharedUser)
	})
}
