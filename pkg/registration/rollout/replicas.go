// Package rollout knows which replicas of Postern are alive, which of them may register webhooks, and which paths
// all of them serve. Each replica keeps a Lease in Postern's namespace and watches the Leases of the others.
package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// Label is the label, with the value LabelValue, of the Lease of every replica.
	Label = "postern.dev/lease"
	// LabelValue is the value of Label.
	LabelValue = "replica"

	fieldManager = "postern"
	// renewInterval is the time between two renewals of a replica's own Lease.
	renewInterval = 3 * time.Second
	// deadAfter is the number of own renewals after which a replica that has not renewed its Lease counts as dead.
	deadAfter = 5
	// maxWritten bounds the own renewals that a late watch may still show.
	maxWritten = 100
	// callTimeout bounds one call of the API server.
	callTimeout = 5 * time.Second
)

// Options describe this replica.
type Options struct {
	Client    kubernetes.Interface
	Namespace string
	// Name is the name of the Lease. It stays the same when the container restarts.
	Name string
	// Pod is the name of the pod that the process runs in. It is empty outside of a pod.
	Pod string
	// Digest is a digest of everything that the replica registers.
	Digest string
	// Serves holds the paths of the services that the replica serves.
	Serves []string
	// Runs holds the names of the plugins that the replica runs.
	Runs []string
}

// Replicas are the replicas of Postern as this replica sees them.
//
// Liveness needs no clock. A replica counts how often it has seen one of its own renewals of its Lease. Another replica
// is dead if its Lease has not changed while that count grew by deadAfter. What somebody else writes to the Lease does not
// count, or a few writes would make all other replicas count as dead. If the API server or the watch stands still, the
// count does not grow, and no replica is declared dead.
type Replicas struct {
	options  Options
	interval time.Duration

	mu    sync.Mutex
	self  replica
	owner *metav1ac.OwnerReferenceApplyConfiguration
	// deployment is the Deployment of this replica, or nil.
	deployment *corev1.ObjectReference
	others     map[string]seen
	ticks      int
	// written holds the renewTimes that this replica has written and not yet seen, in order.
	written []string
	// alone is true if there is no place for Leases. This replica then is the only one that it knows.
	alone   bool
	view    View
	changed chan struct{}
}

// seen is another replica, and the tick at which its Lease was seen to change.
type seen struct {
	replica

	renewed string
	tick    int
}

// Identity is who a replica is to the other replicas.
type Identity struct {
	// Deployment and UID are those of the Deployment of the replica. They are empty if there is none, and before Locate.
	Deployment string
	UID        types.UID
	// Revision is the revision of the ReplicaSet of the replica.
	Revision int64
	// Digest is a digest of everything that the replica registers.
	Digest string
}

// View is what this replica knows of itself and the others at one moment.
type View struct {
	// Self is this replica.
	Self Identity
	// Leads is true if no living replica has a higher rank.
	Leads bool
	// Leader is the name of a living replica with the highest rank.
	Leader string
	// Higher holds the names of the living replicas of a higher rank, whether the API server can call them or not.
	Higher []string
	// Later holds the digests of those that the API server can call.
	Later []string
	// Living holds the names of the living replicas, without this replica. Staying holds those that are not leaving.
	Living, Staying []string
	// Serves holds the paths that every living replica serves, in order.
	Serves []string
	// Lacking holds the names of the plugins that this replica runs and that another living replica does not run.
	Lacking []string
}

// AllServe reports whether every living replica serves the path.
func (v View) AllServe(path string) bool { return slices.Contains(v.Serves, path) }

// AllRun reports whether every living replica runs the plugin, which this replica runs. Replicas that do not tell what
// they run are taken to run it.
func (v View) AllRun(plugin string) bool { return !slices.Contains(v.Lacking, plugin) }

func (v View) equal(o View) bool {
	return v.Self == o.Self && v.Leads == o.Leads && v.Leader == o.Leader && slices.Equal(v.Higher, o.Higher) && slices.Equal(v.Later, o.Later) &&
		slices.Equal(v.Living, o.Living) && slices.Equal(v.Staying, o.Staying) && slices.Equal(v.Serves, o.Serves) && slices.Equal(v.Lacking, o.Lacking)
}

// New returns the Replicas of a replica that has not joined yet.
func New(o Options) *Replicas {
	o.Serves, o.Runs = slices.Sorted(slices.Values(o.Serves)), slices.Sorted(slices.Values(o.Runs))
	r := &Replicas{
		options: o, interval: renewInterval, others: map[string]seen{}, changed: make(chan struct{}),
		self: replica{name: o.Name, rank: rank{digest: o.Digest}, state: joined, serves: o.Serves, runs: o.Runs},
	}
	r.view = r.look()
	return r
}

// Name returns the name of this replica.
func (r *Replicas) Name() string { return r.options.Name }

// View returns what this replica knows of the others.
func (r *Replicas) View() View {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.view
}

// Changed returns a channel that is closed when the View has changed.
func (r *Replicas) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// look computes the View. The caller holds the lock.
func (r *Replicas) look() View {
	v := View{
		Self:  Identity{Revision: r.self.rank.revision, Digest: r.self.rank.digest},
		Leads: true, Leader: r.self.name, Serves: r.self.serves,
	}
	if r.deployment != nil {
		v.Self.Deployment, v.Self.UID = r.deployment.Name, r.deployment.UID
	}
	highest := r.self.rank
	for _, name := range sortedNames(r.others) {
		o := r.others[name]
		if r.ticks-o.tick >= deadAfter {
			continue
		}
		v.Living = append(v.Living, name)
		v.Serves = slices.DeleteFunc(slices.Clone(v.Serves), func(path string) bool { return !slices.Contains(o.serves, path) })
		for _, plugin := range r.self.runs {
			if o.runs != nil && !slices.Contains(o.runs, plugin) && v.AllRun(plugin) {
				v.Lacking = append(v.Lacking, plugin)
			}
		}
		if o.state != leaving {
			v.Staying = append(v.Staying, name)
			if o.rank.compare(r.self.rank) > 0 {
				v.Higher = append(v.Higher, name)
			}
		}
		if o.state == registering && o.rank.compare(r.self.rank) > 0 {
			v.Later = append(v.Later, o.rank.digest)
		}
		if o.state == registering && o.rank.compare(highest) > 0 {
			v.Leads, v.Leader, highest = false, name, o.rank
		}
	}
	v.Leads = v.Leads && r.self.state != leaving
	return v
}

// refresh computes the View again and tells of a change. The caller holds the lock.
func (r *Replicas) refresh() {
	if v := r.look(); !v.equal(r.view) {
		r.view = v
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

func (r *Replicas) leases() coordinationv1client.LeaseInterface {
	return r.options.Client.CoordinationV1().Leases(r.options.Namespace)
}

// Locate finds out to which revision of which Deployment this replica belongs. A Deployment that is known stays known,
// also if the pod is not found, as after a restore of the API server's data, or if its ReplicaSet has no owner any more.
func (r *Replicas) Locate(ctx context.Context) error {
	at, err := r.find(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if at.deployment == nil || r.deployment == nil || at.deployment.UID == r.deployment.UID {
		at.revision = max(at.revision, r.self.rank.revision) // The revision of a ReplicaSet never falls.
	}
	r.owner, r.deployment, r.self.rank.revision = at.pod, cmp.Or(at.deployment, r.deployment), at.revision
	r.refresh()
	return nil
}

// Join writes the Lease of this replica. From then on the other replicas add only what this replica serves. It is called
// after Locate.
func (r *Replicas) Join(ctx context.Context) error {
	list, err := r.leases().List(ctx, metav1.ListOptions{LabelSelector: Label + "=" + LabelValue})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("listing the leases of the replicas: %w", err)
	}
	r.mu.Lock()
	if list != nil {
		for i := range list.Items {
			r.see(&list.Items[i])
		}
		r.self.rank.term = term(r.self.name, r.self.rank, list.Items)
	}
	r.refresh()
	r.mu.Unlock()
	return r.write(ctx)
}

// term returns the term of a replica that starts. A replica that restarts, and a replica that registers what
// another replica of the same revision registers, have the term of that replica. Any other replica takes the next
// term.
func term(name string, own rank, leases []coordinationv1.Lease) int64 {
	var highest, same int64
	for i := range leases {
		o, ok := decode(&leases[i])
		if !ok || o.rank.revision != own.revision {
			continue
		}
		highest = max(highest, o.rank.term)
		switch {
		case o.rank.digest != own.digest:
		case o.name == name:
			return o.rank.term
		default:
			same = max(same, o.rank.term)
		}
	}
	if same > 0 {
		return same
	}
	return highest + 1
}

// see takes the Lease of another replica. The caller holds the lock.
func (r *Replicas) see(l *coordinationv1.Lease) {
	o, ok := decode(l)
	if known, again := r.others[l.Name]; !ok || l.Name == r.self.name || again && known.renewed == renewed(l) {
		return
	}
	r.others[l.Name] = seen{replica: o, renewed: renewed(l), tick: r.ticks}
}

// renewed returns the renewTime of a Lease as a text that is compared for equality only. Every write of a replica
// changes the renewTime.
func renewed(l *coordinationv1.Lease) string { return renewTime(l.Spec.RenewTime) }

func renewTime(t *metav1.MicroTime) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(metav1.RFC3339Micro)
}

// write applies the Lease of this replica.
func (r *Replicas) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r.mu.Lock()
	now := metav1.NowMicro()
	want := r.self.encode(r.options.Namespace, r.owner, now)
	r.written = append(r.written[max(0, len(r.written)-maxWritten+1):], renewTime(&now))
	r.mu.Unlock()
	_, err := r.leases().Apply(ctx, want, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	r.mu.Lock()
	defer r.mu.Unlock()
	// Without the namespace there is no place for a Lease.
	r.alone = apierrors.IsNotFound(err)
	if err != nil && !r.alone {
		return fmt.Errorf("writing lease %s/%s: %w", r.options.Namespace, r.options.Name, err)
	}
	return nil
}

// Register says that the API server can call this replica, so that it takes part in the registration.
func (r *Replicas) Register(ctx context.Context) error { return r.become(ctx, registering) }

// Leave says that this replica is going away. It does not register any more. The other replicas know that it still
// serves its paths.
func (r *Replicas) Leave(ctx context.Context) error { return r.become(ctx, leaving) }

func (r *Replicas) become(ctx context.Context, s state) error {
	r.mu.Lock()
	if r.self.state == leaving {
		r.mu.Unlock()
		return nil
	}
	r.self.state = s
	r.refresh()
	r.mu.Unlock()
	return r.write(ctx)
}

// Last reports whether every other living replica is leaving. It asks the API server, because two replicas may leave
// at the same moment.
func (r *Replicas) Last(ctx context.Context) (bool, error) {
	list, err := r.leases().List(ctx, metav1.ListOptions{LabelSelector: Label + "=" + LabelValue})
	if err != nil {
		return false, fmt.Errorf("listing the leases of the replicas: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range list.Items {
		r.see(&list.Items[i])
	}
	r.refresh()
	return len(r.view.Staying) == 0, nil
}

// Forget deletes the Lease of this replica. The replica does not serve any more.
func (r *Replicas) Forget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := r.leases().Delete(ctx, r.options.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting lease %s/%s: %w", r.options.Namespace, r.options.Name, err)
	}
	return nil
}

// Run renews the Lease of this replica and watches the Leases of the others until ctx ends. It is called after
// Join.
func (r *Replicas) Run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(r.options.Client, 0, informers.WithNamespace(r.options.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = Label + "=" + LabelValue }))
	informer := factory.Coordination().V1().Leases().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: r.observe, UpdateFunc: func(_, obj any) { r.observe(obj) }, DeleteFunc: r.lose,
	})
	if err != nil {
		return fmt.Errorf("watching the leases of the replicas: %w", err)
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	log := klog.FromContext(ctx)
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		if err := r.renew(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "Could not renew the lease of this replica")
		}
	}, r.interval, 0.2, true)
	return nil
}

// renew writes the Lease again, with the revision that the ReplicaSet has now: a rollback gives an old ReplicaSet
// a new revision.
func (r *Replicas) renew(ctx context.Context) error {
	return errors.Join(r.Locate(ctx), r.write(ctx), r.bury(ctx))
}

// bury deletes the Leases of replicas that have been dead for long. The Lease of a pod is deleted with the pod.
func (r *Replicas) bury(ctx context.Context) error {
	r.mu.Lock()
	var dead []string
	for name, o := range r.others {
		if r.ticks-o.tick >= 4*deadAfter {
			dead = append(dead, name)
		}
	}
	r.mu.Unlock()
	var errs []error
	for _, name := range dead {
		if err := r.leases().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("deleting the lease of the dead replica %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (r *Replicas) observe(obj any) {
	l, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.Name == r.self.name {
		if i := slices.Index(r.written, renewed(l)); i >= 0 {
			r.ticks++
			r.written = r.written[i+1:]
		}
	} else {
		r.see(l)
	}
	r.refresh()
}

func (r *Replicas) lose(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	l, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.others, l.Name)
	r.refresh()
}

func sortedNames(m map[string]seen) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Reference returns the object that events about this replica are about: its pod, or its Lease outside of a pod.
func (r *Replicas) Reference() *corev1.ObjectReference {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owner != nil {
		return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: r.options.Namespace, Name: *r.owner.Name, UID: *r.owner.UID}
	}
	return &corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: r.options.Namespace, Name: r.options.Name}
}

// Installation returns the object that events about all replicas are about: their Deployment, or the object of
// Reference if there is none. It returns nil if the namespace of the events does not exist.
func (r *Replicas) Installation() *corev1.ObjectReference {
	r.mu.Lock()
	deployment, alone := r.deployment, r.alone
	r.mu.Unlock()
	switch {
	case alone:
		return nil
	case deployment != nil:
		return deployment
	}
	return r.Reference()
}
