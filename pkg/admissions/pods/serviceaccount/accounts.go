package serviceaccount

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
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
	// maxCached is the size in bytes of the largest account in the cache, encoded as
	// protobuf. An account that lists three secrets has 200 bytes. Memory takes up to
	// seven times as much.
	maxCached = 4 << 10
)

// accounts finds service accounts.
type accounts struct {
	cached cache.Store
	client corev1client.ServiceAccountsGetter
}

func newAccounts(d admit.Deps) (accounts, error) {
	informer := d.Informers.InformerFor(&corev1.ServiceAccount{}, newInformer)
	if err := informer.SetTransform(trimmed); err != nil {
		return accounts{}, fmt.Errorf("watching service accounts: %w", err)
	}
	return accounts{cached: informer.GetStore(), client: d.Client.CoreV1()}, nil
}

func newInformer(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
	all := client.CoreV1().ServiceAccounts(metav1.NamespaceAll)
	return pages.NewInformer(all, client, &corev1.ServiceAccount{}, cache.SharedIndexInformerOptions{
		ResyncPeriod: resync, Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	})
}

// tooLarge takes the place of a large account in the cache. Whoever needs the account
// reads it from the API server, within the memory of a request.
type tooLarge struct{ metav1.ObjectMeta }

// trimmed is the transformation of the informer. It keeps the fields that the plugin
// reads.
func trimmed(obj any) (any, error) {
	account, ok := obj.(*corev1.ServiceAccount)
	if !ok {
		return obj, nil
	}
	out := &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name, ResourceVersion: account.ResourceVersion},
		Secrets:    account.Secrets, ImagePullSecrets: account.ImagePullSecrets, AutomountServiceAccountToken: account.AutomountServiceAccountToken,
	}
	if value, ok := account.Annotations[enforceAnnotation]; ok {
		out.Annotations = map[string]string{enforceAnnotation: value}
	}
	if out.Size() > maxCached {
		return &tooLarge{out.ObjectMeta}, nil
	}
	return out, nil
}

// inNamespace is the admit.Lister of a namespace.
type inNamespace struct {
	cached    cache.Store
	namespace string
}

// Get implements admit.Lister.
func (n inNamespace) Get(name string) (*corev1.ServiceAccount, error) {
	obj, _, err := n.cached.GetByKey(cache.NewObjectName(n.namespace, name).String())
	if err != nil {
		return nil, fmt.Errorf("reading the cache: %w", err)
	}
	if account, ok := obj.(*corev1.ServiceAccount); ok {
		return account, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("serviceaccounts"), name)
}

// get returns an account, or nil if the account does not exist.
func (a accounts) get(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	live := a.client.ServiceAccounts(namespace)
	account, err := admit.Lookup(ctx, inNamespace{a.cached, namespace}, live, name)
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
