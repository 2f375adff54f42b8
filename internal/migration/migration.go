// Package migration turns the manifests of a cluster with the PodSecurityPolicies or PodPresets of kube-apiserver into manifests
// for Postern's.
package migration

import (
	"errors"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/postern-dev/postern/internal/manifests"
	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
	settingsv1alpha1 "github.com/postern-dev/postern/pkg/apis/settings/v1alpha1"
)

var (
	errNoPolicies = errors.New("nothing to migrate: there is no PodSecurityPolicy of policy/v1beta1 or extensions/v1beta1, " +
		"no role that allows to use one only in these groups, and no role or binding of an old version")
	errNoPresets = errors.New("nothing to migrate: there is no PodPreset of settings.k8s.io/v1alpha1, no role for them only in this group, " +
		"and no role or binding of an old version")
)

// Run reads YAML or JSON documents and writes YAML documents. With relatedOnly it leaves out what is not related to the kind of
// the migration. See [manifests.Rewrite].
type Run func(in io.Reader, out, warnings io.Writer, relatedOnly bool) error

// PodSecurityPolicies is the migration of PodSecurityPolicies. Those of policy/v1beta1 and extensions/v1beta1 become those of
// policy.postern.dev/v1. Roles and ClusterRoles that allow to use policies also allow it in that group. Old PodPresets
// only get a warning, because postern migrate podpreset reads what it writes.
func PodSecurityPolicies(in io.Reader, out, warnings io.Writer, relatedOnly bool) error {
	return run(in, out, warnings, errNoPolicies, manifests.Migration{
		Kind:        policyv1.Kind,
		Rewrite:     policy,
		Grant:       manifests.Grant{Verb: "use", Resource: policyv1.Resource, From: []string{"policy", "extensions"}, To: policyv1.GroupName},
		RelatedOnly: relatedOnly,
	})
}

func policy(u *unstructured.Unstructured) (any, error) {
	switch u.GroupVersionKind() {
	case schema.GroupVersionKind{Group: "policy", Version: "v1beta1", Kind: policyv1.Kind},
		schema.GroupVersionKind{Group: "extensions", Version: "v1beta1", Kind: policyv1.Kind}:
		return manifests.Move(u, policyv1.GroupVersion(), &policyv1.PodSecurityPolicy{})
	}
	return nil, nil
}

// PodPresets is the migration of PodPresets. Those of settings.k8s.io/v1alpha1 become those of settings.postern.dev/v1alpha1.
// Roles and ClusterRoles with permissions for presets also have them in that group. Old PodSecurityPolicies only get a
// warning, because postern migrate psp reads what it writes.
func PodPresets(in io.Reader, out, warnings io.Writer, relatedOnly bool) error {
	return run(in, out, warnings, errNoPresets, manifests.Migration{
		Kind:        settingsv1alpha1.Kind,
		Rewrite:     preset,
		Grant:       manifests.Grant{Resource: settingsv1alpha1.Resource, From: []string{settingsv1alpha1.LegacyGroupName}, To: settingsv1alpha1.GroupName},
		RelatedOnly: relatedOnly,
	})
}

func preset(u *unstructured.Unstructured) (any, error) {
	if u.GroupVersionKind() == settingsv1alpha1.LegacyGroupVersion().WithKind(settingsv1alpha1.Kind) {
		return manifests.Move(u, settingsv1alpha1.GroupVersion(), &settingsv1alpha1.PodPreset{})
	}
	return nil, nil
}

func run(in io.Reader, out, warnings io.Writer, nothing error, m manifests.Migration) error {
	err := manifests.Rewrite(in, out, warnings, m)
	if errors.Is(err, manifests.ErrUnchanged) {
		return nothing
	}
	return err
}
