package certs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// TestSimulation starts, stops and rotates replicas in random order. Meanwhile the Secret is deleted, truncated,
// replaced and made read-only, and the API server becomes unreachable. After every step, every registered webhook
// accepts the certificate of every ready replica, and a ready replica stays ready. After all faults have ended,
// all replicas are ready. POSTERN_SEED repeats one run.
func TestSimulation(t *testing.T) {
	seeds := []uint64{}
	if text := os.Getenv("POSTERN_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = append(seeds, seed)
	}
	for seed := range uint64(8) {
		if os.Getenv("POSTERN_SEED") == "" {
			seeds = append(seeds, seed)
		}
	}
	var total counts
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			sim := &simulation{apiServer: newAPIServer(), rand: rand.New(rand.NewPCG(seed, 1)), signers: map[string]bool{}}
			sim.run(t)
			total.add(sim.counts, len(sim.signers))
		})
	}
	t.Logf("%d steps, %d ready replicas verified, %d not ready, %d CAs", total.steps, total.ready, total.unready, total.cas)
	if len(seeds) > 1 && (total.ready < 10*total.unready || total.cas < 2*len(seeds)) {
		t.Errorf("Got %+v, want replicas that are ready most of the time and several CAs for each seed", total)
	}
}

type counts struct{ steps, ready, unready, cas int }

func (c *counts) add(o counts, cas int) {
	c.steps, c.ready, c.unready, c.cas = c.steps+o.steps, c.ready+o.ready, c.unready+o.unready, c.cas+cas
}

type simulation struct {
	*apiServer
	counts

	rand     *rand.Rand
	replicas []*replica
	started  int
	signers  map[string]bool
	faulty   bool
	history  []string
}

func (s *simulation) run(t *testing.T) {
	t.Helper()
	for range 3 {
		s.add(t)
	}
	s.settleDown(t)
	for i := range 300 {
		if i%40 == 39 {
			s.settleDown(t)
			s.allReady(t)
		}
		if s.rand.IntN(8) == 0 {
			s.happen(t)
		}
		s.step(t, s.pause())
	}
	s.settleDown(t)
	s.allReady(t)
}

// pause returns the refresh interval of replicas in most cases, and otherwise minutes or hours.
func (s *simulation) pause() time.Duration {
	switch s.rand.IntN(12) {
	case 0:
		return time.Duration(s.rand.IntN(int(10 * time.Minute)))
	case 1:
		if !s.faulty {
			return time.Duration(s.rand.IntN(int(24 * time.Hour)))
		}
	}
	return 10 * time.Second
}

func (s *simulation) note(format string, args ...any) {
	s.history = append(s.history, fmt.Sprintf("%s step %d: ", s.clock.Now().Format(time.RFC3339), s.steps)+fmt.Sprintf(format, args...))
}

// happen causes one event. An unreachable API server returns soon, because it calls no webhooks meanwhile.
func (s *simulation) happen(t *testing.T) {
	t.Helper()
	switch event := s.rand.IntN(9); event {
	case 0:
		if len(s.replicas) < 5 {
			s.note("a replica starts")
			s.add(t)
		}
	case 1:
		if len(s.replicas) > 1 {
			i := s.rand.IntN(len(s.replicas))
			s.note("replica %s dies", s.replicas[i].name)
			s.replicas = append(s.replicas[:i:i], s.replicas[i+1:]...)
			s.elect()
		}
	case 2:
		s.note("the Secret is deleted")
		s.secret = nil
	case 3, 4, 5:
		if s.secret == nil {
			return
		}
		secret := s.secret.DeepCopy()
		switch event {
		case 3:
			key := []string{bundleKey, certKey, keyKey, nextKeyKey, leavingKey}[s.rand.IntN(5)]
			s.note("%s is truncated", key)
			secret.Data[key] = secret.Data[key][:len(secret.Data[key])/2]
		case 4:
			s.note("another CA is put in")
			pair, err := newKeyPair(s.clock.Now(), 60*24*time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if secret.Data, err = storedData(newCA(pair)); err != nil {
				t.Fatal(err)
			}
		case 5:
			s.note("a rotation is asked for")
			metav1.SetMetaDataAnnotation(&secret.ObjectMeta, rotateAnnotation, "now")
		}
		s.put(secret)
	case 6:
		s.readOnly = !s.readOnly
		s.note("read-only: %v", s.readOnly)
	case 7:
		s.away = !s.away
		s.note("away: %v", s.away)
	case 8:
		s.note("another replica registers")
		s.rand.Shuffle(len(s.replicas), func(i, j int) { s.replicas[i], s.replicas[j] = s.replicas[j], s.replicas[i] })
		s.elect()
	}
	s.faulty = s.away || s.readOnly
}

func (s *simulation) add(t *testing.T) {
	t.Helper()
	s.started++
	skew := time.Duration(s.rand.IntN(int(10*time.Minute))) - 5*time.Minute
	s.replicas = append(s.replicas, s.start(t, strconv.Itoa(s.started), skew))
	s.elect()
}

// elect makes the first replica the only one that registers, like the router does for the replicas of one rollout.
func (s *simulation) elect() {
	for i, r := range s.replicas {
		r.registers = i == 0
	}
}

// step advances the time and runs the replicas in random order.
func (s *simulation) step(t *testing.T, d time.Duration) {
	t.Helper()
	s.steps++
	for d > 0 {
		// Long pauses are divided, so that no replica misses a renewal.
		piece := min(d, time.Hour)
		d -= piece
		s.clock.Step(piece)
		for _, r := range s.replicas {
			r.clock.Step(piece)
		}
		s.work(t)
	}
}

func (s *simulation) work(t *testing.T) {
	t.Helper()
	ctx := klog.NewContext(t.Context(), klog.Logger{})
	for _, i := range s.rand.Perm(len(s.replicas)) {
		r := s.replicas[i]
		s.look(r)
		s.check(t, "after "+r.name+" looked")
		_ = r.refresh(ctx) // A permanent failure makes the final check fail.
		s.check(t, "after "+r.name+" refreshed")
		s.look(r)
		s.check(t, "after "+r.name+" looked again")
		if r.signed != nil {
			s.signers[shortName(r.signed.cert)] = true
		}
	}
}

func (s *simulation) check(t *testing.T, when string) {
	t.Helper()
	for _, r := range s.replicas {
		if err := r.Ready(); err != nil {
			s.unready++
			if r.wasReady {
				s.tell(t)
				t.Fatalf("Step %d, %s: replica %s is not ready any more: %v", s.steps, when, r.name, err)
			}
			continue
		}
		r.wasReady = true
		s.ready++
		if err := s.verified(r); err != nil && !s.away {
			s.tell(t)
			t.Fatalf("Step %d, %s: replica %s is ready and serves a certificate that clients do not accept: %v", s.steps, when, r.name, err)
		}
	}
}

func (s *simulation) tell(t *testing.T) {
	t.Helper()
	for _, line := range s.history[max(0, len(s.history)-25):] {
		t.Log(line)
	}
}

// settleDown ends all faults, and runs the replicas for five minutes.
func (s *simulation) settleDown(t *testing.T) {
	t.Helper()
	s.away, s.readOnly, s.faulty = false, false, false
	for range 30 {
		s.step(t, 10*time.Second)
	}
}

func (s *simulation) allReady(t *testing.T) {
	t.Helper()
	for _, r := range s.replicas {
		if err := r.Ready(); err != nil {
			s.tell(t)
			t.Fatalf("Step %d: replica %s is not ready although all is well: %v", s.steps, r.name, err)
		}
		if r.signed == nil || !r.signed.cert.Equal(s.replicas[0].signed.cert) {
			s.tell(t)
			t.Fatalf("Step %d: replica %s signs with another CA than replica %s", s.steps, r.name, s.replicas[0].name)
		}
	}
}
