package serviceaccount

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/internal/pages"
	"github.com/postern-dev/postern/pkg/admit"
)

const (
	// defaultTries is the maximum number of lookups of a default account. A
	// controller creates this account shortly after the namespace.
	defaultTries = 10
	// minPause is the minimum pause between two lookups. The maximum is twice as
	// long.
	minPause = 100 * time.Millisecond
)

// accounts finds service accounts.
type accounts struct {
	lister corev1listers.ServiceAccountLister
	client corev1client.ServiceAccountsGetter
}

func newAccounts(d admit.Deps) accounts {
	informer := d.Informers.InformerFor(&corev1.ServiceAccount{}, newInformer)
	return accounts{lister: corev1listers.NewServiceAccountLister(informer.GetIndexer()), client: d.Client.CoreV1()}
}

// newInformer lists page by page, unlike the informer that a plugin gets which asks
// the factory for ServiceAccounts first.
func newInformer(client kubernetes.Interface, _ time.Duration) cache.SharedIndexInformer {
	return pages.NewInformer(client.CoreV1().ServiceAccounts(metav1.NamespaceAll), "serviceaccounts")
}

// get returns an account, or nil if the account does not exist.
func (a accounts) get(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	live := a.client.ServiceAccounts(namespace)
	account, err := admit.Lookup(ctx, a.lister.ServiceAccounts(namespace), live, name)
	if name == defaultAccount {
		interval := wait.Jitter(minPause, 1)
		for tries := 1; apierrors.IsNotFound(err) && tries < defaultTries && pause(ctx, interval); tries++ {
			account, err = live.Get(ctx, name, metav1.GetOptions{})
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return account, nil
}

// pause waits, and reports whether to retry. It returns false at once if less than
// twice the pause remains until the deadline: a denial in time is better than an
// answer after the deadline.
func pause(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < 2*d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
