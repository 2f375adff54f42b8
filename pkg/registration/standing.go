package registration

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// UninstalledAnnotation marks Postern's namespace after an uninstall. While the annotation is there, no replica
// registers anything, and every replica removes what it finds registered. If the value is the UID of a Deployment, the
// replicas of other Deployments ignore the annotation. Without a namespace, Uninstall puts the annotation on the
// configurations before it deletes them.
const UninstalledAnnotation = "postern.dev/uninstalled"

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

var errNamespaceGone = errors.New("the namespace of Postern is terminating or does not exist")

// uninstalledError is the refusal after an uninstall.
type uninstalledError struct {
	// cure is what an administrator has to do to install Postern again.
	cure string
}

func (e *uninstalledError) Error() string {
	return "postern was uninstalled: " + e.cure + " to install it again"
}

// standing returns an owner reference to Postern's namespace. The configurations are deleted
// with that namespace. refusal is the reason for which nothing may be registered, or nil: the
// namespace is terminating or does not exist, or Postern was uninstalled.
func (r *Registrar) standing(ctx context.Context) (ref *metav1.OwnerReference, refusal, err error) {
	name := r.deployment.Namespace
	ns, err := r.client.Resource(namespaces).Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, nil, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	switch {
	case r.uninstalled.Load():
		return nil, &uninstalledError{"restart it"}, nil
	case err != nil:
		// A Postern that is called by its URL needs no namespace.
		if r.owned.Load() || r.deployment.URL == "" {
			return nil, errNamespaceGone, nil
		}
		return nil, nil, nil
	case ns.GetDeletionTimestamp() != nil:
		return nil, errNamespaceGone, nil
	}
	if mark, marked := ns.GetAnnotations()[UninstalledAnnotation]; marked && r.concerns(mark) {
		return nil, &uninstalledError{fmt.Sprintf("run kubectl annotate namespace %s %s-", name, UninstalledAnnotation)}, nil
	}
	r.owned.Store(true)
	return &metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: ns.GetName(), UID: ns.GetUID()}, nil, nil
}

// everyDeployment is the mark that concerns all replicas.
const everyDeployment = "true"

// concerns reports whether the mark of an uninstall concerns this replica. A replica that does not know its Deployment
// heeds every mark, because it could belong to the Deployment that was uninstalled.
func (r *Registrar) concerns(mark string) bool {
	own := string(r.fleet.claim().UID)
	return mark == everyDeployment || own == "" || mark == own
}
