// Package clustertrustbundleattest denies publishing a trust bundle of a signer to users who may not attest
// for the signer. See README.md.
package clustertrustbundleattest

import (
	"context"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/internal/kinds/signers"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

const clusterTrustBundle featuregate.Feature = "ClusterTrustBundle"

// Plugin is ClusterTrustBundleAttest.
//
// Upstream: plugin/pkg/admission/certificates/ctbattest.
var Plugin = &admit.Plugin{
	Name: "ClusterTrustBundleAttest",
	Rules: []admit.Rule{
		admit.On("clustertrustbundles/*", admissionv1.Create, admissionv1.Update).Of(certificatesv1.GroupName, "v1", "v1beta1", "v1alpha1").If(condition()),
	},
	Features: map[featuregate.Feature]featuregate.FeatureSpec{clusterTrustBundle: {Default: true, PreRelease: featuregate.GA}},
	Access:   access.Rules{access.Review()},
	New: func(d admit.Deps, _ []byte) (admit.Handler, error) {
		if !d.Features.Enabled(clusterTrustBundle) {
			return admit.Handler{}, nil
		}
		return admit.Handler{Validate: attest{d.Authorize}.validate}, nil
	},
}

// condition is false for a bundle without a signer, for changes of the garbage collector, and for users who
// may attest. An object without a spec is not a bundle.
func condition() string {
	signer := admit.CELValue("object.spec.signerName", "''")
	return admit.CELValue("object.spec", "null") + " == null || (" + signer + " != '' && !(" + onlyCollected() + ") && " +
		signers.NotAuthorized("attest", signer) + ")"
}

// onlyCollected is isOnlyCollected in CEL.
func onlyCollected() string {
	collected := "['ownerReferences', 'finalizers', 'managedFields', 'selfLink']"
	object, old := admit.CELValue("object.metadata", "{}"), admit.CELValue("oldObject.metadata", "{}")
	return strings.Join([]string{
		"request.operation == 'UPDATE'",
		admit.CELValue("oldObject.spec", "null") + " == object.spec",
		"!" + admit.CELAny(object, "k", "!(k in "+collected+" || (k in "+old+" && "+old+"[k] == object.metadata[k]))"),
		"!" + admit.CELAny(old, "k", "!(k in "+collected+" || k in "+object+")"),
	}, " && ")
}

type attest struct {
	authorize admit.AuthorizeFunc
}

// validate checks the new object, because the API server does not let the signer of a bundle change.
func (a attest) validate(ctx context.Context, r *admit.Request) error {
	signer, ok := signerOf(r.Object)
	if !ok {
		// Upstream: the message describes the old object.
		return signers.WrongType(r, "ClusterTrustBundle", r.OldObject)
	}
	if signer == "" || (r.Operation == admissionv1.Update && isOnlyCollected(r.Object, r.OldObject)) {
		return nil
	}
	return signers.Check(ctx, a.authorize, r, "attest", "attest for", signer)
}

func signerOf(obj runtime.Object) (signer string, ok bool) {
	switch bundle := obj.(type) {
	case *certificatesv1.ClusterTrustBundle:
		return bundle.Spec.SignerName, true
	case *certificatesv1beta1.ClusterTrustBundle:
		return bundle.Spec.SignerName, true
	case *certificatesv1alpha1.ClusterTrustBundle:
		return bundle.Spec.SignerName, true
	}
	return "", false
}

// isOnlyCollected reports whether the objects differ only in fields that the garbage collector or a storage
// migration changes. Neither of them may attest for any signer.
//
// Upstream: pkg/registry/rbac IsOnlyMutatingGCFields.
func isOnlyCollected(obj, old runtime.Object) bool {
	if old == nil {
		return false
	}
	same := obj.DeepCopyObject()
	was, err := meta.Accessor(old)
	if err != nil {
		return false
	}
	is, err := meta.Accessor(same)
	if err != nil {
		return false
	}
	is.SetOwnerReferences(was.GetOwnerReferences())
	is.SetFinalizers(was.GetFinalizers())
	is.SetSelfLink(was.GetSelfLink())
	is.SetManagedFields(was.GetManagedFields())
	return apiequality.Semantic.DeepEqual(same, old)
}
