// Package namespaceexists denies every change in a namespace that does not exist.
// See README.md.
package namespaceexists

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// Plugin is NamespaceExists. It sees all changes in all namespaces, including the
// objects that start Postern, so its failure policy is Ignore.
//
// Upstream: plugin/pkg/admission/namespace/exists.
var Plugin = &admit.Plugin{
	Name: "NamespaceExists",
	Rules: []admit.Rule{admit.Rule{
		Group: "*", Versions: []string{"*"}, Resources: []string{"*/*"}, Scope: admissionregistrationv1.NamespacedScope,
		Operations: []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
	}.OrIgnore()},
	Access: access.Rules{access.Lookup("", "namespaces")},
	New: func(d admit.Deps, _ []byte) (admit.Handler, error) {
		p := &plugin{namespaces: d.Informers.Core().V1().Namespaces().Lister(), live: d.Client.CoreV1().Namespaces()}
		return admit.Handler{Validate: p.validate}, nil
	},
}

type plugin struct {
	namespaces corev1listers.NamespaceLister
	live       typedcorev1.NamespaceInterface
}

func (p *plugin) validate(ctx context.Context, r *admit.Request) error {
	// A Namespace object is cluster-scoped, although its requests carry a namespace.
	if r.Namespace == "" || (r.Kind.Group == "" && r.Kind.Kind == "Namespace") {
		return nil
	}
	_, err := admit.Lookup(ctx, p.namespaces, p.live, r.Namespace)
	if apierrors.IsNotFound(err) {
		return admit.Deny(err)
	}
	return err
}
