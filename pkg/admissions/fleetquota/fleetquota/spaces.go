package fleetquota

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/postern-dev/postern/pkg/admit"
)

// spaces looks up the namespaces of the cluster.
type spaces struct {
	cached corev1listers.NamespaceLister
	client kubernetes.Interface
}

func newSpaces(d admit.Deps) *spaces {
	return &spaces{d.Informers.Core().V1().Namespaces().Lister(), d.Client}
}

// selects reports whether a selector selects a namespace.
func (s *spaces) selects(ctx context.Context, selector *metav1.LabelSelector, namespace string) (bool, error) {
	if selector == nil {
		return true, nil
	}
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return true, nil //nolint:nilerr // nobody escapes a quota by an invalid selector
	}
	ns, err := admit.Lookup(ctx, s.cached, s.client.CoreV1().Namespaces(), namespace)
	if apierrors.IsNotFound(err) {
		// The API server rejects the object.
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return compiled.Matches(labels.Set(ns.Labels)), nil
}
