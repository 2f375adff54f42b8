package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/segment"
)

// replica is a pod of the Deployment with the process in it, if one runs.
type replica struct {
	// hash is that of the template of the pod, and release what the process runs.
	pod, hash string
	release   *release
	// waits is until when no process runs, and draining when the pod is gone. doomed is when a pod that is not stored any more ends.
	waits, draining, doomed time.Time

	registrar *Registrar
	end       context.CancelFunc
	// prepared is true if the replica may be ready. busy is true during a step of it.
	prepared, busy bool
	stores         map[string]cache.Store
	// listed is true if the stores are filled. events holds what the watches have not told yet, by kind, and pending what the
	// loop of the registrar has not seen yet.
	listed  bool
	events  map[string][]event
	pending []*unstructured.Unstructured
	// others is closed when the fleet has changed.
	others <-chan struct{}
	// seen is the workloads of the world at the last look, and saw is true if it found a pod of another version.
	seen int
	saw  bool
	// prepare, list, look, probe and attempt are the times of the next steps. attempt is zero if there is none.
	prepare, list, look, probe, attempt, resync time.Time
}

// event is what a watch tells.
type event struct {
	at time.Time
	// object is the last state, and deleted is true if it is gone.
	object  *unstructured.Unstructured
	deleted bool
}

func (p *replica) runs() bool { return p.registrar != nil }

// serves reports whether the API server calls the replica.
func (p *replica) serves() bool { return p.runs() && p.prepared && p.registrar.KeptOut() == nil }

// boot starts the process.
func (w *world) boot(p *replica) {
	ctx, cancel := context.WithCancel(w.ctx)
	p.release = w.current(p.hash)
	client := simulatedClient{
		server: &w.simulatedServer,
		before: func() error { return w.beforeRequest(ctx, p) },
		after:  func() error { return w.afterWrite(ctx, p) },
	}
	fleet := NewFleet(client, FleetOptions{Namespace: "postern-system", Pod: p.pod, Digest: p.release.digest})
	b := newBundle("ca")
	r := NewRegistrar(client, p.release.deployment, p.release.strict, b, segment.New(b.pathKeys), fleet, nil)
	r.noticeTime, r.CanaryPath = 0, "/canary/"+p.pod
	r.client = client.answeredBy(canaryAnswer(!p.release.unreachable, r.canary.webhook()))
	*p = replica{
		pod: p.pod, hash: p.hash, release: p.release, draining: p.draining, doomed: p.doomed,
		registrar: r, end: cancel, prepare: time.Now(), events: map[string][]event{},
		stores: map[string]cache.Store{},
	}
	for kind := range resources() {
		p.stores[kind] = cache.NewStore(cache.MetaNamespaceKeyFunc)
	}
	w.putPod(p)
}

func (c simulatedClient) answeredBy(canary func(*unstructured.Unstructured) error) simulatedClient {
	c.canary = canary
	return c
}

// halt ends the process at once, also in the middle of a step.
func (p *replica) halt() {
	if p.runs() {
		p.end()
	}
	p.registrar, p.prepared = nil, false
}

// restart ends the process, and its container starts again after some time.
func (w *world) restart(p *replica, after time.Duration) {
	p.halt()
	p.waits = time.Now().Add(after)
	w.putPod(p)
}

func (w *world) crash(p *replica) {
	w.counts["crashes"]++
	w.restart(p, w.upTo(10*time.Second))
}

// step does what the process has to do now.
func (w *world) step(p *replica) {
	now := time.Now()
	switch {
	case p.busy:
		return
	case !p.runs():
		if p.draining.IsZero() && !now.Before(p.waits) {
			w.boot(p)
		}
		return
	}
	p.busy = true
	r := p.registrar
	w.act(p, r, now)
	p.busy = false
}

func (w *world) act(p *replica, r *Registrar, now time.Time) {
	ctx := klog.NewContext(w.ctx, klog.Logger{})
	if !p.prepared {
		if now.Before(p.prepare) || !p.draining.IsZero() {
			return
		}
		if err := r.Prepare(ctx); err != nil {
			p.prepare = now.Add(time.Second)
			return
		}
		if p.registrar == r {
			p.prepared, p.list = true, now.Add(w.upTo(time.Second))
			p.others = r.fleet.Changed()
		}
		return
	}
	if !now.Before(p.look) {
		w.look(ctx, p, r.fleet, now)
		p.look = now.Add(lookInterval + w.upTo(lookInterval/5))
	}
	if !p.listed {
		if now.Before(p.list) || w.away {
			return
		}
		w.relist(p)
		p.listed, p.attempt, p.resync = true, now, now.Add(resyncTime)
	}
	if !p.list.IsZero() && !now.Before(p.list) && !w.away {
		w.relist(p)
	}
	for _, u := range p.pending {
		if r.notice(u); p.attempt.IsZero() || r.failures == 0 && p.attempt.After(now.Add(settleTime)) {
			p.attempt = now.Add(settleTime)
		}
	}
	p.pending = nil
	select {
	case <-p.others:
		p.others, p.attempt = r.fleet.Changed(), now
	default:
	}
	if !r.reached && !now.Before(p.probe) {
		if p.probe = now.Add(probeInterval); r.introducing(r.Called)(ctx) == nil {
			r.markReached()
			p.attempt = now
		}
	}
	if !now.Before(p.resync) {
		p.attempt, p.resync = now, now.Add(resyncTime)
	}
	if !p.attempt.IsZero() && !now.Before(p.attempt) {
		p.attempt, p.others = time.Time{}, r.fleet.Changed()
		if again := r.attempt(ctx, p.stores); again > 0 {
			p.attempt = now.Add(again)
		}
	}
}

// look has a replica look at the pods. Most looks find what the last one has found, apart from the time: they are made for once in a
// while only, which saves a third of the time of the simulation.
func (w *world) look(ctx context.Context, p *replica, f *Fleet, now time.Time) {
	if p.seen == w.workloads && w.rand.IntN(4) > 0 && p.looksAgain(f, now) {
		return
	}
	p.seen, p.saw = w.workloads, false
	for key, u := range w.objects {
		p.saw = p.saw || key.gvr == pods && u.GetLabels()["pod-template-hash"] != p.hash
	}
	if f.Look(ctx) != nil {
		p.seen = -1
	}
}

// looksAgain changes what a replica knows as the last look would, and returns false if others have to be told.
func (p *replica) looksAgain(f *Fleet, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isMixed(now) != f.mixed {
		return false
	}
	if f.looked = now; p.saw {
		f.other = now
	}
	return true
}

// relist fills the stores, and tells of what is gone as the informers do after a gap of the watch.
func (w *world) relist(p *replica) {
	p.list, p.events = time.Time{}, map[string][]event{}
	for _, kind := range []string{mutatingKind, validatingKind} {
		current := w.selected(kind)
		for _, u := range objects(p.stores[kind]) {
			if !slices.ContainsFunc(current, func(o *unstructured.Unstructured) bool { return o.GetName() == u.GetName() }) {
				p.tell(kind, event{object: u, deleted: true})
			}
		}
		for _, u := range current {
			p.tell(kind, event{object: u})
		}
	}
}

// selected returns what the informer of a kind selects.
func (w *world) selected(kind string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for key, u := range w.objects {
		if key.gvr == resources()[kind] && isSelected(u) {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, compareNames)
	return out
}

func isSelected(u *unstructured.Unstructured) bool { return u.GetLabels()[NamespaceLabel] != "" }

// tell delivers an event.
func (p *replica) tell(kind string, e event) {
	if e.deleted {
		_ = p.stores[kind].Delete(e.object)
		p.registrar.noticeRemoval(e.object)
	} else {
		_ = p.stores[kind].Update(e.object)
	}
	p.pending = append(p.pending, e.object)
}

// deliver delivers what the watches of a replica tell by now, also while it is busy.
func (w *world) deliver(p *replica) {
	if !p.runs() || !p.listed || w.away {
		return
	}
	now := time.Now()
	for _, kind := range []string{mutatingKind, validatingKind} {
		events, n := p.events[kind], 0
		for n < len(events) && !now.Before(events[n].at) {
			p.tell(kind, events[n])
			n++
		}
		p.events[kind] = events[n:]
	}
}

// publish puts a change of a configuration into the watches of all replicas, which lag.
func (w *world) publish(key objectKey, before, after *unstructured.Unstructured) {
	e := event{object: after}
	switch {
	case after != nil && isSelected(after):
	case before != nil && isSelected(before):
		e = event{object: before, deleted: true} // Also if the label is gone.
	default:
		return
	}
	kind := e.object.GetKind()
	for _, p := range w.replicas {
		if p.runs() && p.listed {
			e.at = time.Now().Add(w.upTo(w.lag))
			if n := len(p.events[kind]); n > 0 && e.at.Before(p.events[kind][n-1].at) {
				e.at = p.events[kind][n-1].at
			}
			p.events[kind] = append(p.events[kind], e)
		}
	}
}

var errEnded = errors.New("the process has ended")

// beforeRequest lets other replicas act first, lets the process end, or lets the request fail.
func (w *world) beforeRequest(ctx context.Context, p *replica) error {
	if ctx.Err() != nil {
		return errEnded
	}
	w.actor = p
	if !w.chaos {
		return nil
	}
	if w.depth < 2 && w.rand.IntN(12) == 0 {
		w.depth++
		q := w.replicas[w.rand.IntN(len(w.replicas))] // At least this one.
		w.deliver(q)
		w.step(q)
		w.depth--
	}
	w.actor = p
	switch n := w.rand.IntN(400); {
	case ctx.Err() != nil, n == 0:
		if n == 0 && p.runs() {
			w.note("%s crashes before a request", p.pod)
			w.crash(p)
		}
		return errEnded
	case n < 6:
		return errLost
	}
	return nil
}

// afterWrite lets the answer be lost, or the process end.
func (w *world) afterWrite(ctx context.Context, p *replica) error {
	if !w.chaos {
		return nil
	}
	switch w.rand.IntN(80) {
	case 0:
		return errLost
	case 1:
		if ctx.Err() == nil && p.runs() {
			w.note("%s crashes after a write", p.pod)
			w.crash(p)
		}
		return errEnded
	}
	return nil
}

// putPod stores the pod as the kubelet sees it.
func (w *world) putPod(p *replica) {
	pod := waitingPod(p.pod)
	if p.runs() {
		pod = runningPod(p.pod)
	}
	pod = of(p.hash, pod)
	if !p.draining.IsZero() {
		pod = terminating(pod)
	}
	w.put(pods, asUnstructured(&pod))
}

func asUnstructured(obj any) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// terminate deletes a pod as the controller does. Its process serves for some time.
func (w *world) terminate(p *replica) {
	w.note("%s is deleted", p.pod)
	p.draining = time.Now().Add(w.upTo(15 * time.Second))
	if p.runs() {
		_ = p.registrar.Leave(klog.NewContext(w.ctx, klog.Logger{}), false)
	}
	w.putPod(p)
}

func (w *world) gone(p *replica) {
	p.halt()
	w.replicas = slices.DeleteFunc(slices.Clone(w.replicas), func(q *replica) bool { return p == q })
	if key := (objectKey{pods, p.pod}); w.objects[key] != nil {
		w.drop(key)
	}
}

// current returns what a process of a template runs if it starts now.
func (w *world) current(hash string) *release {
	if changed := w.configMaps[hash]; changed != nil {
		return changed
	}
	return w.releases[slices.IndexFunc(w.releases, func(r *release) bool { return r.hash == hash })]
}

// add makes a pod of the template.
func (w *world) add() {
	w.names++
	p := &replica{pod: fmt.Sprintf("pod%d", w.names), hash: w.template.hash, release: w.template, waits: time.Now().Add(w.upTo(8 * time.Second))}
	w.replicas = append(w.replicas, p)
	w.putPod(p)
}

// number gives the ReplicaSet of the template the highest revision, as the Deployment controller does.
func (w *world) number() {
	d := w.objects[objectKey{deployments, "postern"}]
	own := objectKey{replicaSets, w.template.hash}
	highest, mine := int64(0), int64(0)
	for key, u := range w.objects {
		if key.gvr == replicaSets {
			highest = max(highest, revisionOf(u))
			if key == own {
				mine = revisionOf(u)
			}
		}
	}
	if mine == 0 || mine < highest {
		mine = highest + 1
		w.put(replicaSets, asUnstructured(replicaSet(w.template.hash, strconv.FormatInt(mine, 10))))
	}
	if revisionOf(d) != mine {
		w.edit(objectKey{deployments, "postern"}, func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{revisionOfDeployment: strconv.FormatInt(mine, 10)})
		})
	}
}

// control does one thing of what the Deployment controller has to do, and what the kubelets have to do.
func (w *world) control() {
	now := time.Now()
	for _, p := range w.replicas {
		if !p.draining.IsZero() && !now.Before(p.draining) || !p.doomed.IsZero() && !now.Before(p.doomed) {
			w.gone(p)
		}
	}
	if w.away {
		return
	}
	w.number()
	var fresh, old []*replica
	ready := 0
	for _, p := range w.replicas {
		if !p.draining.IsZero() || !p.doomed.IsZero() {
			continue
		}
		if p.serves() {
			ready++
		}
		if p.hash == w.template.hash {
			fresh = append(fresh, p)
		} else {
			old = append(old, p)
		}
	}
	stuck := slices.IndexFunc(old, func(p *replica) bool { return !p.serves() })
	switch {
	case len(fresh) < w.size && len(fresh)+len(old) <= w.size:
		w.add()
	case stuck >= 0:
		w.terminate(old[stuck])
	case len(old) > 0 && ready > w.size:
		w.terminate(old[w.rand.IntN(len(old))])
	case len(fresh) > w.size:
		w.terminate(fresh[0])
	}
}
