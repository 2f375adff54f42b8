// Package namespaceautoprovision creates the namespace of a new object if the
// namespace does not exist. See README.md.
package namespaceautoprovision

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// maxCreating is how many namespaces are created at a time. The webhooks see each of them as a request of Postern, which has
// the room that is reserved for the control plane.
const maxCreating = 8

// Plugin is NamespaceAutoProvision. It sees every creation, including the objects
// that start Postern, so its failure policy is Ignore.
//
// Upstream: plugin/pkg/admission/namespace/autoprovision.
var Plugin = &admit.Plugin{
	Name: "NamespaceAutoProvision",
	Rules: []admit.Rule{admit.Rule{
		Group: "*", Versions: []string{"*"}, Resources: []string{"*/*"}, Scope: admissionregistrationv1.NamespacedScope,
		Operations: []admissionv1.Operation{admissionv1.Create},
	}.If("!(has(request.dryRun) && request.dryRun) && !(request.kind.group == '' && request.kind.kind == 'Namespace')").OrIgnore()},
	SideEffects: true,
	Access: access.Rules{
		access.To("", "namespaces", "list", "watch", "create"),
		access.To("", "events", "create"),
	},
	New: func(d admit.Deps, _ []byte) (admit.Handler, error) {
		d.Go(newProbe(d).run)
		return admit.Handler{Mutate: (&plugin{
			namespaces: d.Informers.Core().V1().Namespaces().Lister(),
			live:       d.Client.CoreV1().Namespaces(),
			creating:   semaphore.NewWeighted(maxCreating),
		}).mutate}, nil
	},
}

type plugin struct {
	namespaces corev1listers.NamespaceLister
	live       typedcorev1.NamespaceInterface
	// creating has a place for each namespace that is being created.
	creating *semaphore.Weighted
}

// mutate leaves the object unchanged. The plugin is mutating so that it runs before
// the API server looks for the namespace.
func (p *plugin) mutate(ctx context.Context, r *admit.Request) error {
	if r.IsDryRun() || r.Namespace == "" || (r.Kind.Group == "" && r.Kind.Kind == "Namespace") {
		return nil
	}
	if p.exists(r.Namespace) {
		return nil
	}
	// Users choose how many namespaces are created, and what the webhooks for them have to do.
	reads.Queued(ctx)
	if err := p.creating.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("waiting to create namespace %s: %w", r.Namespace, err)
	}
	defer p.creating.Release(1)
	// Others that waited may have created it.
	if p.exists(r.Namespace) {
		return nil
	}
	// The cache may be stale, but a lookup in the API server first is not needed:
	// Create answers AlreadyExists.
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.Namespace}}
	_, err := p.live.Create(ctx, ns, metav1.CreateOptions{})
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsForbidden(err):
		return admit.Deny(err)
	}
	return admit.Forbidden(r, err)
}

// exists reports whether the cache has the namespace. The error of a cache is always NotFound.
func (p *plugin) exists(namespace string) bool {
	_, err := p.namespaces.Get(namespace)
	return err == nil
}
