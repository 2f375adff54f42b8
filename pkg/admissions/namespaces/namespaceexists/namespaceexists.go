// Package namespaceexists refuses whatever is done in a namespace that does not
// exist. See README.md.
package namespaceexists

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// Plugin is NamespaceExists. It sees all traffic of all namespaces, what a cluster
// needs to get us running included, so that traffic passes while we are away.
//
// Upstream: plugin/pkg/admission/namespace/exists.
var Plugin = &admit.Plugin{
	Name: "NamespaceExists",
	Rules: []admit.Rule{admit.Rule{
		Group: "*", Versions: []string{"*"}, Resources: []string{"*/*"}, Scope: admissionregistrationv1.NamespacedScope,
		Operations: []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
	}.OrIgnore()},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		if err := admit.NoConfig(data); err != nil {
			return admit.Handler{}, err
		}
		p := &plugin{namespaces: d.Informers.Core().V1().Namespaces().Lister(), live: d.Client.CoreV1().Namespaces()}
		return admit.Handler{Validate: p.validate}, nil
	},
}

type plugin struct {
	namespaces corev1listers.NamespaceLister
	live       typedcorev1.NamespaceInterface
}

func (p *plugin) validate(ctx context.Context, r *admit.Request) error {
	// A Namespace object is in no namespace, whatever the request says.
	if r.Namespace == "" || (r.Kind.Group == "" && r.Kind.Kind == "Namespace") {
		return nil
	}
	_, err := admit.Lookup(ctx, p.namespaces, p.live, r.Namespace)
	switch {
	case apierrors.IsNotFound(err):
		// The answer is the API server's own.
		return err
	case err != nil:
		return fmt.Errorf("looking up namespace %s: %w", r.Namespace, err)
	}
	return nil
}
