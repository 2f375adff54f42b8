// Package ownerreferencespermissionenforcement denies a change of owner references to users who may not
// delete the object, and denies blocking the deletion of an owner to users who may not finalize the owner.
// See README.md.
package ownerreferencespermissionenforcement

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// Plugin is OwnerReferencesPermissionEnforcement.
//
// Upstream: plugin/pkg/admission/gc.
var Plugin = &admit.Plugin{
	Name: "OwnerReferencesPermissionEnforcement",
	Rules: []admit.Rule{
		on("*", "*/*").If(condition()),
		// A wildcard excludes these resources unless a rule names them. Whoever may create
		// one of them could otherwise block the deletion of any owner. The condition of the
		// wildcard holds for them too, so that heartbeats of nodes, leader elections and
		// events are admitted without a call.
		on("", "endpoints", "events", "nodes", "pods/binding").If("false"),
		on(certificatesv1.GroupName, "certificatesigningrequests").If("false"),
		on(coordinationv1.GroupName, "leases").If("false"),
		on(discoveryv1.GroupName, "endpointslices").If("false"),
		on(eventsv1.GroupName, "events").If("false"),
	},
	Access: access.Rules{access.Review()},
	New: func(d admit.Deps, _ []byte) (admit.Handler, error) {
		e := &enforcement{authorize: d.Authorize, kinds: kinds{
			mapper: meta.ToRESTMapperWithContext(d.RESTMapper), client: discovery.ToDiscoveryInterfaceWithContext(d.Client.Discovery()), clock: d.Clock,
		}}
		return admit.Handler{Validate: e.validate}, nil
	},
}

func on(group string, resources ...string) admit.Rule {
	return admit.Rule{
		Group: group, Versions: []string{"*"}, Resources: resources,
		Operations: []admissionv1.Operation{admissionv1.Create, admissionv1.Update},
	}
}

type enforcement struct {
	authorize admit.AuthorizeFunc
	kinds     kinds
}

func (e *enforcement) validate(ctx context.Context, r *admit.Request) error {
	if r.Resource.Group == "" && r.Resource.Resource == "pods" && r.SubResource == "status" {
		// Upstream: old kubelets corrupt the references in a pod status, and the API server does not store
		// them.
		return nil
	}
	refs, old, ok := references(r)
	if !ok || apiequality.Semantic.DeepEqual(refs, old) {
		return nil
	}
	// The creator of an object needs no right to delete it.
	if r.Operation != admissionv1.Create {
		if err := e.mayDelete(ctx, r); err != nil {
			return err
		}
	}
	blocking := newlyBlocking(refs, old)
	if len(blocking) == 0 || e.mayFinalizeAnything(ctx, r) {
		return nil
	}
	return e.mayFinalize(ctx, r, blocking)
}

// references returns the references of the object and of the old object, or false if one of the objects
// cannot have references.
func references(r *admit.Request) (refs, old []metav1.OwnerReference, ok bool) {
	object, err := meta.Accessor(r.Object)
	if err != nil {
		return nil, nil, false
	}
	if r.OldObject == nil {
		return object.GetOwnerReferences(), nil, true
	}
	oldObject, err := meta.Accessor(r.OldObject)
	if err != nil {
		return nil, nil, false
	}
	return object.GetOwnerReferences(), oldObject.GetOwnerReferences(), true
}

// newlyBlocking returns the references that block the deletion of their owner and did not before: either no
// reference had that UID, or that reference did not block.
func newlyBlocking(refs, old []metav1.OwnerReference) []metav1.OwnerReference {
	blocked := map[string]bool{}
	for _, ref := range old {
		// Upstream: if several references have one UID, the last one applies.
		blocked[string(ref.UID)] = isBlocking(ref)
	}
	var out []metav1.OwnerReference
	for _, ref := range refs {
		if isBlocking(ref) && !blocked[string(ref.UID)] {
			out = append(out, ref)
		}
	}
	return out
}

func isBlocking(ref metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
}
