// Package ownerreferencespermissionenforcement lets owner references be changed
// only by those who may delete the object, and lets them keep an owner from being
// deleted only by those who may do that to the owner itself. See README.md.
package ownerreferencespermissionenforcement

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// Plugin is OwnerReferencesPermissionEnforcement.
//
// Upstream: plugin/pkg/admission/gc.
var Plugin = &admit.Plugin{
	Name: "OwnerReferencesPermissionEnforcement",
	Rules: []admit.Rule{
		on("*", "*/*").If(condition()),
		// A wildcard leaves these out unless they are named. They can have owners that
		// matter, and are no burden, since we are called for little more than what is
		// refused. The condition of the wildcard is for them too.
		on("", "endpoints", "nodes", "pods/binding").If("false"),
		on(certificatesv1.GroupName, "certificatesigningrequests").If("false"),
		on(discoveryv1.GroupName, "endpointslices").If("false"),
	},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		if err := admit.NoConfig(data); err != nil {
			return admit.Handler{}, err
		}
		e := &enforcement{authorize: d.Authorize, mapper: meta.ToRESTMapperWithContext(d.RESTMapper)}
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
	mapper    meta.RESTMapperWithContext
}

func (e *enforcement) validate(ctx context.Context, r *admit.Request) error {
	if r.Resource.Group == "" && r.Resource.Resource == "pods" && r.SubResource == "status" {
		// Upstream: old kubelets spoil the references there, and the API server does not
		// store them.
		return nil
	}
	refs, old, ok := references(r)
	if !ok || apiequality.Semantic.DeepEqual(refs, old) {
		return nil
	}
	// Who creates an object could as well not create it.
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

// references returns those of the object and of the old one, or false where one of
// them can have none.
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

// newlyBlocking returns the references that keep their owner from being deleted and
// did not before: there was none with that UID, or it did not block.
func newlyBlocking(refs, old []metav1.OwnerReference) []metav1.OwnerReference {
	blocked := map[string]bool{}
	for _, ref := range old {
		// Upstream: of several with one UID the last one counts.
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
