package ledger_test

import (
	"errors"
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
)

// TestImpossibleDemands refuses demands beyond the whole limit. The other clusters keep what they have claimed, because
// nothing that they return would suffice, and the hub is not written.
func TestImpossibleDemands(t *testing.T) {
	h := hubOf()
	east, west := siteOf(h, "east"), siteOf(h, "west")
	west.admits(t, "w1", 100)
	for range 3 {
		east.look(t)
		west.look(t)
	}
	west.has(t, 150)
	version := h.quota.ResourceVersion
	for _, n := range []int64{501, math.MaxInt32, math.MaxInt64} {
		east.refuses(t, "e1", n)
		east.refuses(t, "e2", n)
	}
	if h.quota.ResourceVersion != version {
		t.Errorf("Got version %s of the quota, want %s", h.quota.ResourceVersion, version)
	}
	west.look(t)
	west.has(t, 150)
	// What others can return is asked for.
	east.refuses(t, "e1", 400)
	west.look(t)
	west.has(t, 100)
	east.admits(t, "e1", 400)
}

// TestLimitOfAnotherResource stores a workload before the quota that uses more of one resource than the limit. The other
// resource is admitted up to its limit.
func TestLimitOfAnotherResource(t *testing.T) {
	h := hubOf()
	h.limit(corev1.ResourceList{cpu: resource.MustParse("10"), corev1.ResourceRequestsMemory: resource.MustParse("1Gi")})
	s := siteOf(h, "east")
	s.store("old", corev1.ResourceList{corev1.ResourceRequestsMemory: resource.MustParse("2Gi")})
	s.look(t)
	s.admits(t, "c1", 6)
	s.admits(t, "c2", 4)
	s.refuses(t, "c3", 1)
	var short *ledger.ShortError
	if err := s.submit(t, s.replica, "m1", corev1.ResourceList{corev1.ResourceRequestsMemory: resource.MustParse("1")}); !errors.As(err, &short) {
		t.Errorf("Got %v for memory beyond the limit, want a refusal", err)
	}
	if got := s.account.Status.Allowance[corev1.ResourceRequestsMemory]; got.String() != "1Gi" {
		t.Errorf("Got an allowance of %s, want the whole limit", got.String())
	}
}
