package ledger_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func of(name corev1.ResourceName, amount string) corev1.ResourceList {
	return corev1.ResourceList{name: resource.MustParse(amount)}
}

// TestEnormousAmounts admits amounts whose sums int64 cannot represent, up to a limit. A quantity with a suffix such as Ei
// is read as at most 8Ei - 1 from the text of an object.
func TestEnormousAmounts(t *testing.T) {
	for _, test := range []struct {
		name  corev1.ResourceName
		limit string
		// unit and times are what one workload uses: a sum has the format of its first amount. fits is how many workloads fit.
		unit        string
		times, fits int64
	}{
		{"pods", "9223372036854775807", "9223372036854775807", 1, 1},
		{"pods", "9223372036854775807", "4611686014132420609", 1, 2},
		{"pods", "9223372036854775807", "1Ei", 4, 1},
		{"requests.cpu", "36893488147419103228m", "9223372036854775807m", 1, 4},
		{"requests.cpu", "36893488147419103227m", "9223372036854775807m", 1, 3},
		{"requests.memory", "100E", "7Ei", 1, 12},
		{"requests.memory", "100E", "1Ei", 27, 3},
		{"requests.memory", "1Ti", "1Ei", 27, 0},
	} {
		t.Run(string(test.name)+" "+test.unit, func(t *testing.T) {
			h := hubOf()
			h.limit(of(test.name, test.limit))
			s := siteOf(h, "east")
			q := resource.MustParse(test.unit)
			q.Mul(test.times)
			usage := corev1.ResourceList{test.name: q}
			admitted := int64(0)
			for s.submit(t, s.replica, uid(int(admitted)), usage) == nil && admitted < 20 {
				admitted++
				if admitted%2 == 0 {
					s.look(t)
				}
			}
			if admitted != test.fits {
				t.Errorf("%d workloads of %s are admitted, want %d", admitted, q.String(), test.fits)
			}
		})
	}
}

// TestEnormousWorkloads counts workloads that were stored before the quota and that use more than int64 can represent.
// Nothing is admitted besides them, and the account is not written again when nothing changes.
func TestEnormousWorkloads(t *testing.T) {
	for _, limit := range []string{"0", "1Ti", "9223372036854775807"} {
		h := hubOf()
		h.limit(of("requests.memory", limit))
		s := siteOf(h, "east")
		for i := range 3 {
			s.store(uid(i), of("requests.memory", "7Ei"))
		}
		for range 3 {
			s.look(t)
		}
		before, version := s.writes, h.quota.ResourceVersion
		for range 3 {
			s.look(t)
		}
		if s.writes != before || h.quota.ResourceVersion != version {
			t.Errorf("Limit %s: got %d writes of the account, and version %s of the quota, want no writes after version %s", limit, s.writes-before, h.quota.ResourceVersion, version)
		}
		if err := s.submit(t, s.replica, "more", of("requests.memory", "1")); err == nil {
			t.Errorf("Limit %s: one byte more is admitted", limit)
		}
		if claimed := h.quota.Status.Claimed["requests.memory"]; claimed.Cmp(resource.MustParse(limit)) > 0 {
			t.Errorf("Limit %s: %s is claimed", limit, claimed.String())
		}
	}
}
