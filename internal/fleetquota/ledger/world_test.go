package ledger_test

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// setting describes a simulated fleet.
type setting struct {
	seed               uint64
	clusters, replicas int
	limit              int64
	duration           time.Duration
	// every is the mean time between two requests in a cluster.
	every time.Duration
	// keeps is the mean life of a workload.
	keeps time.Duration
	// largest is the largest workload, in CPUs.
	largest int64
	// busy is the number of clusters that send requests at a time. 0 means all of them.
	busy int
	// faults are parts of 1,000 calls, or of 1,000 seconds of a replica.
	lostRequests, lostAnswers, crashes, partitions, stalls, dropped int
	heartbeat                                                       time.Duration
	step                                                            float64
	// latency is the mean time of a call to the hub. A call in the cluster takes a tenth of it.
	latency time.Duration
	policy  policy
}

// policy is how a limit is shared.
type policy int

const (
	allowances policy = iota
	askHub
	staticShares
)

const (
	quotaName = "cpus"
	cpu       = corev1.ResourceRequestsCPU
	// callTimeout is when a client gives up, requestTimeout when the API server does.
	callTimeout    = 2 * time.Second
	requestTimeout = 60 * time.Second
	pendingTimeout = 100 * time.Second
)

var (
	errCrashed = errors.New("the process has crashed")
	errTimeout = errors.New("the call took too long")
)

// world is a simulated fleet: one thread, one queue of events, one source of random numbers. A seed therefore always has
// the same history.
type world struct {
	setting

	rng      *rand.Rand
	now      time.Duration
	queue    events
	number   int
	hub      hub
	clusters []*cluster
	stats    stats
	// used is what all stored workloads use.
	used int64
	// threads are those that have not ended.
	threads map[*thread]bool
	// unchecked is true when a test breaks an invariant on purpose.
	unchecked bool
	// still is true when nothing is deleted any more.
	still bool
	// broken is the first violation of an invariant.
	broken string
}

// stats are what the report is about.
type stats struct {
	decided                                     map[ledger.Outcome]int
	failed, hubCalls, hubWrites, hubConflicts   int
	refusedWithRoom                             int
	waits                                       []time.Duration
	largestPending                              int
	usedTime, limitTime                         float64
	lastUsed                                    int64
	lastChange                                  time.Duration
	created, updated, deleted, replicasRestarts int
}

type event struct {
	at time.Duration
	n  int
	do func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

func (w *world) after(d time.Duration, do func()) {
	w.number++
	heap.Push(&w.queue, event{w.now + d, w.number, do})
}

// run runs events until a time.
func (w *world) run(until time.Duration) {
	for len(w.queue) > 0 && w.queue[0].at <= until && w.broken == "" {
		e, _ := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
	}
	w.now = max(w.now, until)
}

// thread is a sequence of calls of one process.
type thread struct {
	yield func(time.Duration) bool
	stop  func()
	dead  bool
}

type threadKey struct{}

// start runs f as a thread. A thread waits by sleep.
func (w *world) start(f func(ctx context.Context)) *thread {
	th := &thread{}
	next, stop := iter.Pull(func(yield func(time.Duration) bool) {
		th.yield = yield
		f(context.WithValue(context.Background(), threadKey{}, th))
	})
	th.stop = func() { th.dead = true; stop() }
	var step func()
	step = func() {
		if th.dead {
			return
		}
		d, ok := next()
		if ok {
			w.after(d, step)
			return
		}
		delete(w.threads, th)
	}
	w.threads[th] = true
	w.after(0, step)
	return th
}

// end ends all threads, which would otherwise stay in memory.
func (w *world) end() {
	for th := range w.threads {
		th.stop()
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	th, _ := ctx.Value(threadKey{}).(*thread)
	if th.dead || !th.yield(d) {
		th.dead = true
		return errCrashed
	}
	return nil
}

func (w *world) chance(of1000 int) bool { return of1000 > 0 && w.rng.IntN(1000) < of1000 }

// around returns a random time with a mean.
func (w *world) around(mean time.Duration) time.Duration {
	return time.Duration(w.rng.ExpFloat64() * float64(mean))
}

// call is a call over a network. The server may apply it although the client gets no answer, and may do so much later.
func (w *world) call(ctx context.Context, latency time.Duration, reachable func() bool, apply func() error) error {
	if err := sleep(ctx, w.around(latency/2)); err != nil {
		return err
	}
	switch {
	case !reachable(), w.chance(w.lostRequests):
		if err := sleep(ctx, callTimeout); err != nil {
			return err
		}
		return errTimeout
	case w.chance(w.lostAnswers):
		w.after(w.around(callTimeout), func() { _ = apply() })
		if err := sleep(ctx, callTimeout); err != nil {
			return err
		}
		return errTimeout
	}
	err := apply()
	if slept := sleep(ctx, w.around(latency/2)); slept != nil {
		return slept
	}
	return err
}

func cpus(n int64) corev1.ResourceList {
	return corev1.ResourceList{cpu: *resource.NewQuantity(n, resource.DecimalSI)}
}

func amount(l corev1.ResourceList) int64 {
	q := l[cpu]
	return q.MilliValue()
}

// newWorld returns a fleet without workloads.
func newWorld(s setting) *world {
	w := &world{setting: s, threads: map[*thread]bool{}, rng: rand.New(rand.NewPCG(s.seed, 1))}
	w.stats.decided = map[ledger.Outcome]int{}
	w.hub = hub{world: w, quota: &quotav1alpha1.FleetQuota{
		ObjectMeta: metav1.ObjectMeta{Name: quotaName, UID: "quota", ResourceVersion: "1"},
		Spec:       quotav1alpha1.FleetQuotaSpec{Hard: cpus(s.limit)},
	}}
	for i := range s.clusters {
		w.clusters = append(w.clusters, newCluster(w, i))
	}
	return w
}

// check checks the invariants after a change of a cluster or of the hub.
func (w *world) check(c *cluster) {
	if w.policy == staticShares || w.unchecked {
		return
	}
	fail := func(format string, args ...any) {
		if w.broken == "" {
			w.broken = fmt.Sprintf("at %v: ", w.now) + fmt.Sprintf(format, args...)
		}
	}
	used := w.used
	if used > w.limit {
		fail("the workloads use %d of %d CPUs", used, w.limit)
	}
	if w.policy == askHub {
		return
	}
	if c != nil {
		if charged := amount(ledger.Charged(c.account)); c.used*1000 > charged {
			fail("cluster %s uses %d CPUs, and is charged %dm", c.name, c.used, charged)
		}
		allowance := amount(c.account.Status.Allowance)
		if charged := amount(ledger.Charged(c.account)); charged > allowance {
			fail("cluster %s is charged %dm, and has an allowance of %dm", c.name, charged, allowance)
		}
		if held := w.hub.allowance(c.name); c.account.Status.Quota != "" && allowance > held {
			fail("cluster %s has an allowance of %dm, and the hub has %dm for it", c.name, allowance, held)
		}
		return
	}
	var sum int64
	for i := range w.hub.quota.Status.Clusters {
		sum += amount(w.hub.quota.Status.Clusters[i].Allowance)
	}
	if sum > w.limit*1000 {
		fail("the allowances are %dm of %d CPUs", sum, w.limit)
	}
}

// count adds the time since the last change to the utilisation.
func (w *world) count() {
	took := (w.now - w.stats.lastChange).Seconds()
	w.stats.usedTime += took * float64(w.stats.lastUsed)
	w.stats.limitTime += took * float64(w.limit)
	w.stats.lastChange, w.stats.lastUsed = w.now, w.used
}

// clock returns the time of a process, whose clock is wrong and runs at another rate.
func (w *world) clock(rate float64, offset time.Duration) func() time.Time {
	return func() time.Time { return time.Unix(0, 0).Add(offset + time.Duration(rate*float64(w.now))) }
}

func version(n int64) string { return strconv.FormatInt(n, 10) }

func uid(n int) types.UID { return types.UID(strconv.Itoa(n)) }
