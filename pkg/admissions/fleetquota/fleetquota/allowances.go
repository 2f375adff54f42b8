package fleetquota

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// allowance is a cached FleetAllowance.
type allowance struct {
	metav1.ObjectMeta

	content *quotav1alpha1.FleetAllowance
	err     error
}

var errUnsynced = errors.New("the allowances are not known yet")

// list returns the newest known allowances of all quotas.
func (l *ledgers) list() ([]*quotav1alpha1.FleetAllowance, error) {
	if !l.cached.HasSynced() {
		return nil, errUnsynced
	}
	var out []*quotav1alpha1.FleetAllowance
	for _, obj := range l.cached.GetStore().List() {
		a, err := allowanceOf(obj)
		if err != nil {
			return nil, err
		}
		b := l.book(a.Name)
		b.account.Notice(a)
		if known := b.account.Known(); known != nil {
			a = known
		}
		out = append(out, a)
	}
	return out, nil
}

// allowanceOf decodes an object of the informer of FleetAllowances.
func allowanceOf(obj any) (*quotav1alpha1.FleetAllowance, error) {
	a, ok := obj.(*allowance)
	if !ok {
		return nil, fmt.Errorf("got a %T in the cache of FleetAllowances", obj)
	}
	return a.content, a.err
}
