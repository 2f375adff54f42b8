package ownerreferencespermissionenforcement

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/authorization"
	"github.com/postern-dev/postern/pkg/admit"
)

const (
	// maxOwners is the largest number of access reviews of one request. Users choose the number of owners.
	maxOwners = 100
	// maxParallel is the largest number of concurrent access reviews of one request.
	maxParallel = 8
)

// mayDelete denies a user who may not delete the object of the request: its owners decide when the object is
// deleted.
func (e *enforcement) mayDelete(ctx context.Context, r *admit.Request) error {
	a := authorizationv1.ResourceAttributes{
		Verb: "delete", Namespace: r.Namespace, Group: r.Resource.Group, Version: r.Resource.Version,
		Resource: r.Resource.Resource, Subresource: r.SubResource, Name: r.Name,
	}
	got, err := e.ask(ctx, r, a)
	if err != nil || got.Allowed {
		return err
	}
	return admit.Forbidden(r, fmt.Errorf("cannot set an ownerRef on a resource you can't delete: %s: %s", words(got), missing(r.UserInfo.Username, a)))
}

// mayFinalizeAnything reports whether a user may block the deletion of every object. Then the owners need no
// lookup.
func (e *enforcement) mayFinalizeAnything(ctx context.Context, r *admit.Request) bool {
	got, err := e.ask(ctx, r, finalizers("*", "*", "*", "*"))
	if err != nil {
		// The user may still be allowed to finalize each owner.
		klog.FromContext(ctx).V(4).Info("Access to all finalizers could not be decided", "err", err)
	}
	return err == nil && got.Allowed
}

// mayFinalize denies a user who may not block the deletion of one of the owners. The denial names the first
// such owner.
func (e *enforcement) mayFinalize(ctx context.Context, r *admit.Request, refs []metav1.OwnerReference) error {
	owners := distinct(refs)
	if len(owners) > maxOwners {
		return admit.Forbidden(r, fmt.Errorf(
			"cannot set blockOwnerDeletion for %d owners in one request: the limit is %d for users who can't set finalizers on all resources", len(owners), maxOwners))
	}
	questions, unmapped := e.questions(ctx, r, owners)
	for batch := range slices.Chunk(questions, maxParallel) {
		answers := make([]answer, len(batch))
		var wg sync.WaitGroup
		for i, a := range batch {
			wg.Go(func() { answers[i].decision, answers[i].err = e.ask(ctx, r, a) })
		}
		wg.Wait()
		for i, got := range answers {
			if got.err != nil {
				return got.err
			}
			if !got.decision.Allowed {
				return admit.Forbidden(r, fmt.Errorf("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: %s: %s", words(got.decision), missing(r.UserInfo.Username, batch[i])))
			}
		}
	}
	return unmapped
}

// answer is the answer to one access review.
type answer struct {
	decision admit.Decision
	err      error
}

// distinct returns the references with one reference per owner.
func distinct(refs []metav1.OwnerReference) []metav1.OwnerReference {
	type owner struct{ apiVersion, kind, name string }
	seen := sets.New[owner]()
	var out []metav1.OwnerReference
	for _, ref := range refs {
		if o := (owner{ref.APIVersion, ref.Kind, ref.Name}); !seen.Has(o) {
			seen.Insert(o)
			out = append(out, ref)
		}
	}
	return out
}

// questions returns the access reviews for the owners, in order and without duplicates. A namespaced owner is
// in the namespace of the object. The error is about the first owner whose resource is not found, and the
// access reviews are those for the owners before that one: the first owner that is denied decides the message.
func (e *enforcement) questions(ctx context.Context, r *admit.Request, owners []metav1.OwnerReference) ([]authorizationv1.ResourceAttributes, error) {
	seen := sets.New[authorizationv1.ResourceAttributes]()
	var out []authorizationv1.ResourceAttributes
	for _, ref := range owners {
		mappings, err := e.resourcesOf(ctx, r, ref)
		if err != nil {
			return out, err
		}
		for _, m := range mappings {
			name := ref.Name
			if len(name) > validation.DNS1123SubdomainMaxLength {
				// No object has it, and its user must not choose that the question is too large for the API server. Who
				// may finalize such an owner may finalize all.
				name = ""
			}
			a := finalizers(m.Resource.Group, m.Resource.Version, m.Resource.Resource, name)
			if m.Scope.Name() == meta.RESTScopeNameNamespace {
				a.Namespace = r.Namespace
			}
			if !seen.Has(a) {
				seen.Insert(a)
				out = append(out, a)
			}
		}
	}
	return out, nil
}

// resourcesOf returns the resources that the kind of an owner may map to. An unknown kind is a denial; a
// failed discovery request is not.
func (e *enforcement) resourcesOf(ctx context.Context, r *admit.Request, ref metav1.OwnerReference) ([]*meta.RESTMapping, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	var mappings []*meta.RESTMapping
	if err == nil {
		mappings, err = e.kinds.mappings(ctx, schema.GroupKind{Group: gv.Group, Kind: ref.Kind}, gv.Version)
		if err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("finding the resource of %s %s: %w", ref.APIVersion, ref.Kind, err)
		}
	}
	if err != nil {
		return nil, admit.Forbidden(r, fmt.Errorf("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: %w", ref.APIVersion, ref.Kind, err))
	}
	return mappings, nil
}

// finalizers returns the access review for blocking the deletion of an object.
func finalizers(group, version, resource, name string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{
		Verb: "update", Group: group, Version: version, Resource: resource, Subresource: "finalizers", Name: name,
	}
}

func (e *enforcement) ask(ctx context.Context, r *admit.Request, a authorizationv1.ResourceAttributes) (admit.Decision, error) {
	got, err := e.authorize(ctx, authorization.ReviewFor(r.UserInfo, &a))
	if err != nil {
		return got, fmt.Errorf("asking whether the user may %s %s %q: %w", a.Verb, path.Join(a.Resource, a.Subresource), a.Name, err)
	}
	return got, nil
}

// words returns the reason and the error of the authorizer in the words of kube-apiserver.
func words(d admit.Decision) string {
	return d.Reason + ", " + cmp.Or(d.EvaluationError, "<nil>")
}
