package ownerreferencespermissionenforcement

import (
	"cmp"
	"context"
	"fmt"
	"path"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// mayDelete denies a user who may not delete the object of the request: to change
// its owners is to say when it goes.
func (e *enforcement) mayDelete(ctx context.Context, r *admit.Request) error {
	got, err := e.ask(ctx, r, authorizationv1.ResourceAttributes{
		Verb: "delete", Namespace: r.Namespace, Group: r.Resource.Group, Version: r.Resource.Version,
		Resource: r.Resource.Resource, Subresource: r.SubResource, Name: r.Name,
	})
	if err != nil || got.Allowed {
		return err
	}
	return admit.Forbidden(r, fmt.Errorf("cannot set an ownerRef on a resource you can't delete: %s", words(got)))
}

// mayFinalizeAnything reports whether a user may keep everything from being
// deleted. Then nobody need know what the owners are.
func (e *enforcement) mayFinalizeAnything(ctx context.Context, r *admit.Request) bool {
	got, err := e.ask(ctx, r, finalizers("*", "*", "*", "*"))
	if err != nil {
		// The user may still be allowed each of them.
		klog.FromContext(ctx).V(4).Info("Access to all finalizers could not be decided", "err", err)
	}
	return err == nil && got.Allowed
}

// mayFinalize denies a user who may not keep one of the owners from being deleted.
// An owner of a namespace is in that of the object.
func (e *enforcement) mayFinalize(ctx context.Context, r *admit.Request, refs []metav1.OwnerReference) error {
	allowed := map[authorizationv1.ResourceAttributes]bool{}
	for _, ref := range refs {
		mappings, err := e.resourcesOf(ctx, r, ref)
		if err != nil {
			return err
		}
		for _, m := range mappings {
			a := finalizers(m.Resource.Group, m.Resource.Version, m.Resource.Resource, ref.Name)
			if m.Scope.Name() == meta.RESTScopeNameNamespace {
				a.Namespace = r.Namespace
			}
			if allowed[a] {
				continue
			}
			got, err := e.ask(ctx, r, a)
			if err != nil {
				return err
			}
			if !got.Allowed {
				return admit.Forbidden(r, fmt.Errorf("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: %s", words(got)))
			}
			allowed[a] = true
		}
	}
	return nil
}

// resourcesOf returns the resources that the kind of an owner could be. That there
// are none is a denial; that the API server could not be asked is none.
func (e *enforcement) resourcesOf(ctx context.Context, r *admit.Request, ref metav1.OwnerReference) ([]*meta.RESTMapping, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	var mappings []*meta.RESTMapping
	if err == nil {
		mappings, err = e.mapper.RESTMappingsWithContext(ctx, schema.GroupKind{Group: gv.Group, Kind: ref.Kind}, gv.Version)
		if err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("finding the resource of %s %s: %w", ref.APIVersion, ref.Kind, err)
		}
	}
	if err != nil {
		return nil, admit.Forbidden(r, fmt.Errorf("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: %w", ref.APIVersion, ref.Kind, err))
	}
	return mappings, nil
}

// finalizers is what it takes to keep an object from being deleted.
func finalizers(group, version, resource, name string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{
		Verb: "update", Group: group, Version: version, Resource: resource, Subresource: "finalizers", Name: name,
	}
}

func (e *enforcement) ask(ctx context.Context, r *admit.Request, a authorizationv1.ResourceAttributes) (admit.Decision, error) {
	got, err := e.authorize(ctx, admit.AccessReviewFor(r.UserInfo, &a))
	if err != nil {
		return got, fmt.Errorf("asking whether the user may %s %s %q: %w", a.Verb, path.Join(a.Resource, a.Subresource), a.Name, err)
	}
	return got, nil
}

// words are those of kube-apiserver for the reason and the error of its authorizer.
func words(d admit.Decision) string {
	return d.Reason + ", " + cmp.Or(d.EvaluationError, "<nil>")
}
