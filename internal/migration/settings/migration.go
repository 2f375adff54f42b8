// Package migration turns the manifests of a cluster with kube-apiserver's PodPresets into manifests for Postern's.
package migration

import (
	"errors"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/postern-dev/postern/internal/manifests"
	settingsv1alpha1 "github.com/postern-dev/postern/pkg/apis/settings/v1alpha1"
)

var errNothing = errors.New("nothing to migrate: there is no PodPreset of settings.k8s.io/v1alpha1, no role for them only in this group, " +
	"and no role or binding of an old version")

// Run reads YAML or JSON documents and writes YAML documents:
//
//   - PodPresets of settings.k8s.io/v1alpha1 become those of settings.postern.dev/v1alpha1.
//   - Roles and ClusterRoles with permissions for presets also have them in the group settings.postern.dev.
//   - Roles and bindings of v1alpha1 and v1beta1 become those of v1.
//   - Lists become documents of their own.
//   - All other YAML documents stay as they are. JSON becomes YAML.
//
// All objects lose the metadata that has a meaning only in the old cluster, such as uid and ownerReferences. A warning names
// each object that loses ownerReferences, finalizers or a deletionTimestamp.
//
// An unknown field of a preset is an error, and so is a version of another kind that Kubernetes removed. Run writes nothing
// if it returns an error. Old PodSecurityPolicies only get a warning, because postern migrate psp reads what Run writes.
//
// With relatedOnly, Run writes only the presets, the roles that explicitly have permissions for them, and the bindings to
// these roles. See [manifests.Migration].
func Run(in io.Reader, out, warnings io.Writer, relatedOnly bool) error {
	err := manifests.Rewrite(in, out, warnings, manifests.Migration{
		Kind:        settingsv1alpha1.Kind,
		Rewrite:     preset,
		Grant:       manifests.Grant{Resource: settingsv1alpha1.Resource, From: []string{settingsv1alpha1.LegacyGroupName}, To: settingsv1alpha1.GroupName},
		RelatedOnly: relatedOnly,
	})
	if errors.Is(err, manifests.ErrUnchanged) {
		return errNothing
	}
	return err
}

func preset(u *unstructured.Unstructured) (any, error) {
	if u.GroupVersionKind() == settingsv1alpha1.LegacyGroupVersion().WithKind(settingsv1alpha1.Kind) {
		return manifests.Move(u, settingsv1alpha1.GroupVersion(), &settingsv1alpha1.PodPreset{})
	}
	return nil, nil
}
