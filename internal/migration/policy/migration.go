// Package migration turns the manifests of a cluster with kube-apiserver's PodSecurityPolicies into manifests for
// Postern's.
package migration

import (
	"errors"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/postern-dev/postern/internal/manifests"
	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
)

var errNothing = errors.New("nothing to migrate: there is no PodSecurityPolicy of policy/v1beta1 or extensions/v1beta1, " +
	"no role that allows to use one only in these groups, and no role or binding of an old version")

// Run reads YAML or JSON documents and writes YAML documents:
//
//   - PodSecurityPolicies of policy/v1beta1 and extensions/v1beta1 become those of policy.postern.dev/v1.
//   - Roles and ClusterRoles that allow to use policies also allow it in the group policy.postern.dev.
//   - Roles and bindings of v1alpha1 and v1beta1 become those of v1.
//   - Lists become documents of their own.
//   - All other YAML documents stay as they are. JSON becomes YAML.
//
// All objects lose the metadata that has a meaning only in the old cluster, such as uid and ownerReferences. A warning names
// each object that loses ownerReferences, finalizers or a deletionTimestamp.
//
// An unknown field of a policy is an error, and so is a version of another kind that Kubernetes removed. Run writes nothing
// if it returns an error. Old PodPresets only get a warning, because postern migrate podpreset reads what Run writes.
//
// With relatedOnly, Run writes only the policies, the roles that explicitly allow to use them, and the bindings to these
// roles. See [manifests.Migration].
func Run(in io.Reader, out, warnings io.Writer, relatedOnly bool) error {
	err := manifests.Rewrite(in, out, warnings, manifests.Migration{
		Kind:        policyv1.Kind,
		Rewrite:     policy,
		Grant:       manifests.Grant{Verb: "use", Resource: policyv1.Resource, From: []string{"policy", "extensions"}, To: policyv1.GroupName},
		RelatedOnly: relatedOnly,
	})
	if errors.Is(err, manifests.ErrUnchanged) {
		return errNothing
	}
	return err
}

func policy(u *unstructured.Unstructured) (any, error) {
	switch u.GroupVersionKind() {
	case schema.GroupVersionKind{Group: "policy", Version: "v1beta1", Kind: policyv1.Kind},
		schema.GroupVersionKind{Group: "extensions", Version: "v1beta1", Kind: policyv1.Kind}:
		return manifests.Move(u, policyv1.GroupVersion(), &policyv1.PodSecurityPolicy{})
	}
	return nil, nil
}
