// Package namespaceautoprovision creates the namespace of a new object if the
// namespace does not exist. See README.md.
package namespaceautoprovision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/writes"
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
		return admit.Handler{Mutate: newPlugin(d.Informers.Core().V1().Namespaces().Lister(), d.Client.CoreV1().Namespaces()).mutate}, nil
	},
}

type plugin struct {
	namespaces corev1listers.NamespaceLister
	live       typedcorev1.NamespaceInterface
	creating   *writes.Limit
	// failures bounds the log lines about namespaces that cannot be created.
	failures rate.Sometimes
}

func newPlugin(namespaces corev1listers.NamespaceLister, live typedcorev1.NamespaceInterface) *plugin {
	return &plugin{namespaces: namespaces, live: live, creating: writes.NewLimit(maxCreating), failures: rate.Sometimes{Interval: time.Second}}
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
	// Users choose how many namespaces are created, and how long the webhooks for them take.
	ctx, cancel := admit.Early(ctx)
	defer cancel()
	err := p.creating.Do(ctx, func() error { return p.create(ctx, r.Namespace) })
	// A creation without an answer may have had its effect, and others may have created the namespace.
	if err == nil || apierrors.IsAlreadyExists(err) || p.exists(r.Namespace) {
		return nil
	}
	if apierrors.IsForbidden(err) {
		return admit.Forbidden(r, admit.Deny(err))
	}
	p.failures.Do(func() {
		klog.FromContext(ctx).Error(err, "Could not create a namespace, so the request is denied", "plugin", "NamespaceAutoProvision", "namespace", r.Namespace)
	})
	if errors.Is(err, writes.ErrBusy) {
		return admit.TooMany(fmt.Errorf("namespace %s was not created: %w", r.Namespace, err))
	}
	return admit.Forbidden(r, writes.Shown(err))
}

// create creates a namespace unless those that waited before have done so.
func (p *plugin) create(ctx context.Context, name string) error {
	if p.exists(name) {
		return nil
	}
	// The cache may be stale, but a lookup in the API server first is not needed:
	// Create answers AlreadyExists.
	_, err := p.live.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err // kube-apiserver's message has no more than the error.
}

// exists reports whether the cache has the namespace. The error of a cache is always NotFound.
func (p *plugin) exists(namespace string) bool {
	_, err := p.namespaces.Get(namespace)
	return err == nil
}
