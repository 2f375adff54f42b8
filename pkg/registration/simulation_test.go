package registration

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/postern-dev/postern/internal/ring"
)

var (
	seeds     = flag.Int("seeds", 2000, "number of simulated rollouts of TestManyRollouts")
	firstSeed = flag.Uint64("first-seed", 1, "the first seed of TestManyRollouts")
)

// TestRollouts rolls versions and flags of Postern out at random, and undoes that, while replicas crash, start again and lose answers,
// watches are late, the API server goes away, an older store is restored, and users edit, delete, uninstall and forge. Other replicas
// act between two requests of one. After each change and each half second it checks, for every pair of replicas that serve:
//   - every registered path is served,
//   - objects are refused that a plugin of all replicas refuses, and the API server asks this plugin, once it did,
//   - good objects are admitted,
//   - a replica removes only what it does not serve, and no replica of a later revision that was reached would have kept.
//
// What a user has just damaged is not checked until a replica has written it, which must be soon, and nothing is from the restore of an
// older store on until the faults end. Then the newest revision has registered what it serves and nothing else, and nobody writes any
// more. Good objects are not checked where the flags of one revision differ. Three faults are known and cannot happen here: plugins that
// need changes of other plugins or families, and plugins whose configuration differs between two revisions. Not simulated are CAs
// and path keys (see pkg/certs), processes, other Deployments, URLs, forged marks, and --deregister-on-shutdown.
func TestRollouts(t *testing.T) {
	t.Parallel()
	got := simulate(t, 1, 300)
	for _, name := range []string{"admitted", "refused", "mended", "removed by replicas", "crashes", "restores", "repairs in a rollout"} {
		if got[name] < 10 {
			t.Errorf("%d %s, want a simulation in which that happens", got[name], name)
		}
	}
	if got["agreements"] == 0 {
		t.Error("No replicas of one revision with different flags have agreed")
	}
}

// TestManyRollouts is TestRollouts with many seeds. -seeds=1 -first-seed repeats one.
func TestManyRollouts(t *testing.T) {
	ring.Second(t, "it takes minutes")
	if *seeds < 1 {
		t.Fatalf("-seeds is %d, want 1 or more", *seeds)
	}
	simulate(t, *firstSeed, *seeds)
}

func simulate(t *testing.T, first uint64, seeds int) counts {
	t.Helper()
	total, all, known := counts{}, releases(t), answers{}
	for i := range seeds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, first+uint64(i), all, known)
			w.run()
			for name, n := range w.counts {
				total[name] += n
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(total)) {
		t.Logf("%9d %s", total[name], name)
	}
	return total
}

// counts says how often something happened.
type counts map[string]int

// world is a cluster in which a Deployment of Postern is rolled out, by users who do everything wrong.
type world struct {
	simulatedServer

	t       *testing.T
	ctx     context.Context //nolint:containedctx // It is that of the test.
	rand    *rand.Rand
	seed    uint64
	start   time.Time
	history []string
	counts  counts
	answers answers

	releases []*release
	replicas []*replica
	// size is the number of replicas, and names that of all pods up to now.
	size, names int
	// lag bounds how late watches are.
	lag time.Duration
	// chaos is true while requests fail, processes crash, and others act during a request.
	chaos bool
	depth int
	// actor makes a request, or is nil if a user does.
	actor *replica
	older *etcd

	// workloads counts the changes of pods and ReplicaSets.
	workloads int
	// configured counts the changes of configurations, and written those that replicas made.
	configured, written int
	checked             string
	// damaged holds the configurations that a user changed, until a replica has written them, and restored is true from the
	// restore of an older store to the next calm.
	damaged  map[configKey]bool
	restored bool
	// ended is true if the namespace is being deleted.
	ended bool
	// touched is when a user changed a configuration last.
	touched time.Time
	// asked holds the plugins that the API server must go on to ask.
	asked map[string]bool
	// owed is when a user took away the configuration of a plugin that the API server must ask again.
	owed map[string]time.Time
}

func newWorld(t *testing.T, seed uint64, all []*release, known answers) *world {
	t.Helper()
	w := &world{
		t: t, seed: seed, ctx: t.Context(), rand: rand.New(rand.NewPCG(seed, 1)), start: time.Now(), releases: all, answers: known, counts: counts{},
		damaged: map[configKey]bool{}, asked: map[string]bool{}, owed: map[string]time.Time{},
	}
	w.simulatedServer = simulatedServer{changed: w.observe, etcd: etcd{
		objects: map[objectKey]*unstructured.Unstructured{}, applied: map[objectKey][]string{}, configMaps: map[string]*release{},
	}}
	w.size, w.lag = 1+w.rand.IntN(3), w.upTo(3*time.Second)
	w.template = w.anyRelease(true)
	w.put(namespaces, ourNamespace())
	w.put(coreServices, canaryService())
	d := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}}
	d.SetName("postern")
	d.SetUID("postern-uid")
	w.put(deployments, d)
	return w
}

// upTo returns a random time.
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rand.Int64N(int64(d))) }

func (w *world) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf("%7.2f ", time.Since(w.start).Seconds())+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	for _, line := range w.history[max(0, len(w.history)-60):] {
		w.t.Log(line)
	}
	w.t.Fatalf("Seed %d: %s", w.seed, fmt.Sprintf(format, args...))
}

func (w *world) anyRelease(reachable bool) *release {
	for {
		r := w.releases[w.rand.IntN(len(w.releases))]
		if !r.unreachable || !reachable && w.rand.IntN(5) == 0 {
			return r
		}
	}
}

func (w *world) run() {
	w.note("%d replicas, lag %s, %s", w.size, w.lag, w.template)
	for range 60 {
		if w.advance(time.Second); w.incomplete() == "" {
			break
		}
	}
	w.chaos = true
	for range 3 + w.rand.IntN(8) {
		w.happen()
		w.advance(w.upTo(15 * time.Second))
	}
	w.calm()
	if w.rand.IntN(8) == 0 {
		w.end()
	}
}

// advance lets time pass.
func (w *world) advance(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(500 * time.Millisecond)
		w.control()
		for _, i := range w.rand.Perm(len(w.replicas)) {
			w.deliver(w.replicas[i])
			w.step(w.replicas[i])
		}
		w.check("a moment")
	}
}

// happen causes one event.
func (w *world) happen() {
	w.actor = nil
	if len(w.replicas) == 0 {
		return
	}
	p := w.replicas[w.rand.IntN(len(w.replicas))]
	configs := w.allConfigs()
	var config *unstructured.Unstructured
	if len(configs) > 0 && !w.away {
		config = configs[w.rand.IntN(len(configs))]
	}
	switch n := w.rand.IntN(14); {
	case n < 4 && w.unlabelled():
	case n < 4:
		w.rollOut(w.anyRelease(false))
	case n == 4:
		w.note("%s restarts", p.pod)
		w.restart(p, w.upTo(20*time.Second))
	case n == 5:
		w.note("the node of %s is gone", p.pod)
		w.gone(p)
	case n == 6 && config != nil:
		w.note("a user deletes %s %s", config.GetKind(), config.GetName())
		w.damage(config)
		w.drop(objectKey{resources()[config.GetKind()], config.GetName()})
	case n == 7 && config != nil:
		w.edits(config)
	case n == 8:
		w.away = !w.away
		w.note("the API server is away: %v", w.away)
	case n == 9 && w.older == nil && !w.away:
		older := w.clone()
		w.older = &older
		w.note("a backup is made")
	case n == 9 && !w.away:
		w.restore()
	case n == 10:
		w.size = 1 + w.rand.IntN(3)
		w.note("scaled to %d", w.size)
	case n == 11:
		w.forge()
	case n == 12:
		w.reconfigure()
	case n == 13 && !w.away:
		w.uninstall()
	}
}

func (r *release) String() string {
	return fmt.Sprintf("%s %v of %d families, unreachable %v", r.hash, r.plugins, len(r.strict), r.unreachable)
}

func (w *world) rollOut(r *release) {
	w.note("rollout of %s", r)
	w.template = r
}

// reconfigure changes the ConfigMap of the template, which a process reads when it starts.
func (w *world) reconfigure() {
	r := w.anyRelease(true)
	if len(r.strict) == len(w.template.strict) { // It is the same program.
		w.note("the ConfigMap of %s becomes that of %s", w.template.hash, r)
		w.configMaps[w.template.hash] = r
	}
}

// uninstall has a user uninstall Postern, or undo that.
func (w *world) uninstall() {
	key := objectKey{namespaces, "postern-system"}
	if w.isUninstalled() {
		w.note("the uninstall is undone")
		w.edit(key, func(u *unstructured.Unstructured) { u.SetAnnotations(nil) })
		return
	}
	w.note("a user uninstalls Postern")
	for _, config := range w.allConfigs() {
		w.damage(config)
	}
	nothing := func() error { return nil }
	if _, err := Uninstall(w.ctx, simulatedClient{server: &w.simulatedServer, before: nothing, after: nothing}, w.template.deployment, ""); err != nil {
		w.fail("Uninstalling: %v", err)
	}
}

func (w *world) isUninstalled() bool {
	return w.objects[objectKey{namespaces, "postern-system"}].GetAnnotations() != nil
}

// end deletes the namespace.
func (w *world) end() {
	w.note("the namespace is deleted")
	w.edit(objectKey{namespaces, "postern-system"}, func(u *unstructured.Unstructured) { u.SetDeletionTimestamp(&metav1.Time{Time: time.Now()}) })
	w.ended = true
	w.advance(10 * time.Second)
	if left := w.allConfigs(); len(left) > 0 {
		w.fail("%d configurations are left", len(left))
	}
}

// forge makes a pod that looks like one of another version, or deletes it.
func (w *world) forge() {
	key := objectKey{pods, "forged"}
	if w.objects[key] != nil {
		w.drop(key)
		return
	}
	w.note("a pod is forged")
	pod := runningPod("forged")
	w.put(pods, asUnstructured(&pod))
}

// edits changes a configuration as a user who knows better.
func (w *world) edits(config *unstructured.Unstructured) {
	n := w.rand.IntN(6)
	if n == 4 && slices.ContainsFunc(w.replicas, func(p *replica) bool {
		return p.release != w.current(w.template.hash) || !p.release.registers(keyOf(config)) || !p.serves()
	}) {
		return
	}
	w.note("a user edits %s %s: %d", config.GetKind(), config.GetName(), n)
	w.damage(config)
	w.edit(objectKey{resources()[config.GetKind()], config.GetName()}, func(u *unstructured.Unstructured) {
		for _, webhook := range webhookList(u.Object) {
			switch n {
			case 0:
				asMap(webhook)["failurePolicy"] = "Ignore"
			case 1:
				asMap(webhook)["matchConditions"] = append(asMap(webhook)["matchConditions"].([]any), map[string]any{"name": "never", "expression": "false"})
			}
		}
		switch n {
		case 2:
			u.Object["webhooks"] = []any{}
		case 3:
			u.SetAnnotations(nil)
		case 4:
			u.SetLabels(nil)
		case 5:
			claim, _ := claim{Deployment: "postern", UID: "postern-uid", Revision: 999, Digest: "forged"}.text()
			u.SetAnnotations(map[string]string{ClaimAnnotation: claim})
		}
	})
}

// unlabelled reports whether a configuration lacks the labels by which replicas find it. If those that would repair it are replaced
// by replicas that do not know its name, it stays for good.
func (w *world) unlabelled() bool {
	return slices.ContainsFunc(w.allConfigs(), func(u *unstructured.Unstructured) bool { return !isSelected(u) })
}

func (w *world) damage(config *unstructured.Unstructured) {
	w.damaged[keyOf(config)], w.touched = true, time.Now()
}

// restore puts an older store in the place of the current one.
func (w *world) restore() {
	w.note("the backup is restored")
	w.counts["restores"]++
	w.etcd = w.older.clone()
	w.older, w.restored = nil, true
	w.configured++
	w.workloads++
	stored := map[string]bool{}
	for key, u := range w.objects {
		if key.gvr == pods && key.name != "forged" {
			stored[key.name] = true
			if !slices.ContainsFunc(w.replicas, func(p *replica) bool { return p.pod == key.name }) {
				w.revive(u)
			}
		}
	}
	for _, p := range w.replicas {
		if !stored[p.pod] {
			p.doomed = time.Now().Add(w.upTo(10 * time.Second))
		} else {
			w.putPod(p)
		}
		if p.runs() && p.listed {
			p.list = time.Now().Add(w.upTo(3 * time.Second))
		}
	}
}

// revive makes the replica of a pod that was deleted since the backup.
func (w *world) revive(pod *unstructured.Unstructured) {
	hash := pod.GetLabels()["pod-template-hash"]
	w.replicas = append(w.replicas, &replica{pod: pod.GetName(), hash: hash, release: w.current(hash), waits: time.Now().Add(w.upTo(5 * time.Second))})
}

// calm ends all faults, and waits for what the replicas make of it.
func (w *world) calm() {
	w.note("calm")
	w.chaos, w.away, w.actor = false, false, nil
	if w.template.unreachable {
		w.rollOut(w.anyRelease(true))
	}
	if key := (objectKey{pods, "forged"}); w.objects[key] != nil {
		w.drop(key)
	}
	if w.isUninstalled() {
		w.uninstall()
	}
	w.agree()
	for range 60 {
		for _, p := range w.replicas {
			if p.runs() && p.release != w.current(p.hash) {
				w.restart(p, w.upTo(10*time.Second))
				break
			}
		}
		if w.advance(5 * time.Second); w.incomplete() == "" {
			break
		}
	}
	w.damaged, w.restored, w.checked = map[configKey]bool{}, false, ""
	w.check("calm")
	if reason := w.incomplete(); reason != "" {
		w.fail("After a long calm, %s", reason)
	}
	before := w.written
	w.advance(40 * time.Second)
	if w.written != before {
		w.fail("Replicas write though nothing happens")
	}
}

// agree checks that processes of one revision with different flags do not go on to overwrite each other.
func (w *world) agree() {
	if !w.differ() {
		return
	}
	before, claims := 0, map[string]bool{}
	for range 20 {
		before = w.written
		w.advance(25 * time.Second)
		clear(claims)
		for _, u := range w.allConfigs() {
			claims[u.GetAnnotations()[ClaimAnnotation]] = true
		}
		waits := slices.ContainsFunc(w.replicas, func(p *replica) bool { return p.serves() && p.registrar.Status() != nil })
		if w.written == before && (len(claims) == 0 || len(claims) == 1 && !waits) {
			w.counts["agreements"]++
			return
		}
	}
	w.fail("After a long calm, replicas write: %t, and these have registered: %v", w.written != before, slices.Sorted(maps.Keys(claims)))
}

// incomplete returns "" if the newest revision has registered what it serves, and nothing else. Otherwise it returns the reason.
func (w *world) incomplete() string {
	want, newest := map[configKey]bool{}, w.current(w.template.hash)
	for _, s := range newest.strict {
		for _, key := range newest.deployment.keys(s) {
			want[key] = true
		}
	}
	have := map[configKey]bool{}
	for _, u := range w.allConfigs() {
		have[keyOf(u)] = true
		if c, _ := claimOf(u); c.Digest != newest.digest {
			return fmt.Sprintf("%s %s has the claim of %s %s", u.GetKind(), u.GetName(), c, c.Digest)
		}
	}
	if reason := w.differs(); reason != "" {
		return reason
	}
	if !maps.Equal(have, want) {
		return fmt.Sprintf("%v are registered, want %v", have, want)
	}
	for _, p := range w.replicas {
		switch {
		case !p.serves():
			return p.pod + " is not ready"
		case p.registrar.Status() != nil:
			return p.pod + ": " + p.registrar.Status().Error()
		case p.registrar.fleet.Mixed():
			return p.pod + " sees others"
		}
	}
	return ""
}

// differs returns "" if what is registered is what the newest revision desires, in every field.
func (w *world) differs() string {
	for _, p := range w.replicas {
		if !p.serves() || p.hash != w.template.hash {
			continue
		}
		desired, err := p.registrar.desired(nil, p.registrar.fleet.claim(), p.registrar.endpoint())
		if err != nil {
			return err.Error()
		}
		for key, want := range desired {
			have := w.objects[objectKey{resources()[key.kind], key.name}]
			if have == nil || !covers(have.Object, want.Object) || len(leftovers(want, have)) > 0 {
				return fmt.Sprintf("%s %s is not as %s desires it", key.kind, key.name, p.pod)
			}
		}
		validating := w.configs(validatingKind)
		for _, plugin := range p.release.plugins {
			if !asks(validating, plugin) {
				return "the API server does not ask " + plugin
			}
		}
		return ""
	}
	return "no replica of the newest revision serves"
}

// observe looks at each change.
func (w *world) observe(key objectKey, before, after *unstructured.Unstructured) {
	switch key.gvr {
	case pods, replicaSets:
		w.workloads++
	case namespaces:
		for _, p := range w.replicas {
			p.attempt = time.Now().Add(w.upTo(w.lag))
		}
	}
	if !isConfiguration(key.gvr) {
		return
	}
	w.configured++
	w.publish(key, before, after)
	u := cmp.Or(after, before)
	if isCanary(u) {
		return
	}
	if p := w.actor; p != nil {
		w.written++
		if after == nil {
			w.note("%s deletes %s %s", p.pod, u.GetKind(), u.GetName())
			w.mayRemove(p, u)
		} else {
			c, _ := claimOf(u)
			w.note("%s writes %s %s of %s %v", p.pod, u.GetKind(), u.GetName(), c, u.GetAnnotations()[RemovedAnnotation] != "")
			if before == nil && w.damaged[keyOf(u)] && p.registrar.fleet.Mixed() {
				w.counts["repairs in a rollout"]++
			}
		}
		delete(w.damaged, keyOf(u))
		w.check("a write of " + p.pod)
	}
}

// mayRemove checks a removal by a replica.
func (w *world) mayRemove(p *replica, u *unstructured.Unstructured) {
	w.counts["removed by replicas"]++
	if w.ended || w.isUninstalled() {
		return
	}
	if p.release.registers(keyOf(u)) {
		w.fail("%s removes %s %s, which it serves", p.pod, u.GetKind(), u.GetName())
	}
	if w.restored {
		return // Some replicas have revisions from before.
	}
	own := p.registrar.fleet.claim()
	for _, q := range w.replicas {
		if !q.runs() || !q.registrar.joined.Load() || !q.draining.IsZero() {
			continue
		}
		if q.registrar.fleet.claim().Revision > own.Revision {
			w.fail("%s removes %s %s, though the later %s was reached", p.pod, u.GetKind(), u.GetName(), q.pod)
		}
	}
}

// check checks what users get from every pair of replicas.
func (w *world) check(when string) {
	var callees []callee
	state := fmt.Sprint(w.configured)
	for _, p := range w.replicas {
		if !p.serves() {
			continue
		}
		c := callee{p.release, p.registrar.fleet.MayDiffer()}
		if !slices.Contains(callees, c) {
			callees = append(callees, c)
			state += fmt.Sprint(c.release.hash, c.mixed)
		}
	}
	for plugin, since := range w.owed {
		key := configKey{validatingKind, configOf(plugin)}
		if w.away || !slices.ContainsFunc(w.replicas, func(p *replica) bool {
			return p.serves() && p.draining.IsZero() && p.hash == w.template.hash && p.registrar.had.of(key) == wasRegistered
		}) {
			w.owed[plugin] = time.Now() // Nobody who knows that it was registered can repair it.
		} else if time.Since(since) > 40*time.Second {
			w.fail("%s: the API server does not ask %s, %s after a user changed the configuration", when, plugin, time.Since(since))
		}
	}
	if state == w.checked {
		return
	}
	w.checked = state
	mutating, validating := w.configs(mutatingKind), w.configs(validatingKind)
	for _, plugin := range []string{"Tier", "Forbid", "Zone"} {
		has := len(callees) > 0 && !w.restored && !w.ended && !w.isUninstalled()
		for _, p := range w.replicas {
			if (p.serves() || p.runs() && p.registrar.joined.Load()) && !p.release.has(plugin) {
				has = false
			}
		}
		covered := asks(validating, plugin)
		switch {
		case !has || covered:
			delete(w.owed, plugin)
		case w.asked[plugin] && w.damaged[configKey{validatingKind, configOf(plugin)}]:
			w.owed[plugin] = time.Now()
		case w.asked[plugin]:
			w.fail("%s: the API server does not ask %s any more", when, plugin)
		}
		w.asked[plugin] = has && covered
	}
	for _, a := range callees {
		for _, b := range callees {
			for _, o := range traffic {
				w.judge(when, a, b, o, mutating, validating)
			}
		}
	}
}

// differ reports whether processes of one revision have different flags.
func (w *world) differ() bool {
	known := map[string]*release{}
	return slices.ContainsFunc(w.replicas, func(p *replica) bool {
		if !p.runs() {
			return false
		}
		before := known[p.hash]
		known[p.hash] = p.release
		return before != nil && before != p.release
	})
}

// isDamaged reports whether a user changed the configurations with a name, which a replica has to repair.
func (w *world) isDamaged(name string) bool {
	for _, kind := range []string{mutatingKind, validatingKind} {
		key := configKey{kind, name}
		if w.damaged[key] && slices.ContainsFunc(w.replicas, func(p *replica) bool { return p.runs() && p.release.registers(key) }) {
			return true
		}
	}
	return false
}

func (w *world) judge(when string, a, b callee, o trafficObject, mutating, validating []*unstructured.Unstructured) {
	got := w.answers.create(w.ctx, o, mutating, validating, a, b)
	if w.restored || w.isDamaged("postern-pods") || o.resource == "pods" && w.isDamaged("postern-zones") {
		return
	}
	switch {
	case got == failed && time.Since(w.touched) < 2*w.lag+2*time.Second:
		// A replica repairs at the same moment what another one removes.
	case got == failed:
		w.fail("%s: a path is not served by %s or %s", when, a.release, b.release)
	case o.refusedBy == "" && got == refused && w.differ():
		// A replica has started since the ConfigMap changed.
	case o.refusedBy == "" && got == refused:
		w.fail("%s: %s is refused by %s after %s, mixed %v", when, o.json, b.release, a.release, b.mixed)
	case o.refusedBy != "" && w.asked[o.refusedBy] && got != refused:
		w.fail("%s: %s is admitted by %s after %s, mixed %v", when, o.json, b.release, a.release, b.mixed)
	case got == refused:
		w.counts["refused"]++
	case b.mixed && a.release != b.release && w.answers.create(w.ctx, o, mutating, validating, a, callee{b.release, false}) == refused:
		w.counts["mended"]++
	default:
		w.counts["admitted"]++
	}
}
