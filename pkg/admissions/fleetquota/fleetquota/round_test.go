package fleetquota

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// slow is a cluster whose API server does not answer for some resources.
type slow struct {
	ledger.Workloads

	jobs, pods atomic.Int64
}

// Stored implements ledger.Workloads.
func (s *slow) Stored(ctx context.Context, p *quotav1alpha1.Pending) (types.UID, string, error) {
	switch p.Resource {
	case "jobs":
		s.jobs.Add(1)
	case "pods":
		s.pods.Add(1)
	default:
		<-ctx.Done()
	}
	return "", "", ctx.Err()
}

// TestALookupThatHangs has the lookups of some quotas hang. Those of another quota do not wait for them, and a round ends.
func TestALookupThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := &ledgers{books: map[string]*book{}}, &slow{}
		for _, resource := range []string{"hangs", "jobs", "pods"} {
			a := &quotav1alpha1.FleetAllowance{ObjectMeta: metav1.ObjectMeta{Name: resource}}
			for i := range 2 * maxLookups {
				a.Status.Pending = append(a.Status.Pending, quotav1alpha1.Pending{Request: types.UID(fmt.Sprint(resource, i)), Resource: resource})
			}
			b := &book{account: ledger.NewAccount(resource, nil, nil, s, ledger.Options{Now: time.Now})}
			b.account.Notice(a)
			l.books[resource] = b
		}
		start := time.Now()
		go l.lookUpOnce(t.Context())
		synctest.Wait()
		if jobs, pods := s.jobs.Load(), s.pods.Load(); jobs != maxLookups || pods != maxLookups {
			t.Errorf("Looked up %d jobs and %d pods at once, want %d of each", jobs, pods, maxLookups)
		}
		l.lookUpOnce(t.Context())
		if took := time.Since(start); took != lookupTimeout {
			t.Errorf("The rounds took %v, want %v", took, lookupTimeout)
		}
	})
}
