// Package namespaceautoprovision makes the namespace that something is created in,
// if there is none of that name. See README.md.
package namespaceautoprovision

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// Plugin is NamespaceAutoProvision. All that is created is looked at, what a
// cluster needs to get us running included, so it passes while we are away.
//
// Upstream: plugin/pkg/admission/namespace/autoprovision.
var Plugin = &admit.Plugin{
	Name: "NamespaceAutoProvision",
	Rules: []admit.Rule{admit.Rule{
		Group: "*", Versions: []string{"*"}, Resources: []string{"*/*"}, Scope: admissionregistrationv1.NamespacedScope,
		Operations: []admissionv1.Operation{admissionv1.Create},
	}.If("!(has(request.dryRun) && request.dryRun) && !(request.kind.group == '' && request.kind.kind == 'Namespace')").OrIgnore()},
	SideEffects: true,
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		if err := admit.NoConfig(data); err != nil {
			return admit.Handler{}, err
		}
		d.Go(newProbe(d).run)
		p := &plugin{namespaces: d.Informers.Core().V1().Namespaces().Lister(), live: d.Client.CoreV1().Namespaces()}
		return admit.Handler{Mutate: p.mutate}, nil
	},
}

type plugin struct {
	namespaces corev1listers.NamespaceLister
	live       typedcorev1.NamespaceInterface
}

// mutate changes nothing in the object: the API server is to be called before its
// namespace is looked for.
func (p *plugin) mutate(ctx context.Context, r *admit.Request) error {
	if r.IsDryRun() || r.Namespace == "" || (r.Kind.Group == "" && r.Kind.Kind == "Namespace") {
		return nil
	}
	_, err := p.namespaces.Get(r.Namespace)
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("looking up namespace %s: %w", r.Namespace, err)
	}
	// Whether it is really missing is not asked first: that is what the API server
	// says to this.
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.Namespace}}
	_, err = p.live.Create(ctx, ns, metav1.CreateOptions{})
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		// There will be no such namespace.
		return admit.Forbidden(r, err)
	}
	return fmt.Errorf("creating namespace %s: %w", r.Namespace, err)
}
