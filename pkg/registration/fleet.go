package registration

import (
	"cmp"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

const (
	// mixedTime is how long the last pod of another version still counts after it has gone: an object that it has mutated may be
	// validated later.
	mixedTime = time.Minute
	// mendTime is how long plugins go on to mend: each replica finds out by itself that mixedTime is over, and then adds mutating halves.
	mendTime = mixedTime + 10*time.Second
)

// Fleet is what a replica knows of itself and of the other pods of its Deployment. Outside of a Deployment, it knows
// only itself.
//
// The pods tell only which versions run. That may delay what is added, and makes plugins mend denials. Only a replica that ends
// with --deregister-on-shutdown removes something because of it. Who registers is said by the claims of the configurations.
type Fleet struct {
	client    dynamic.Interface
	namespace string
	// pod is the name of the pod of this process, or empty. name is that of this replica.
	pod, name string

	mu   sync.Mutex
	self claim
	// uid is the UID of the pod, or empty if the pod is not known.
	uid types.UID
	// workload selects the pods of the Deployment, and hash is the label of those of this version. workload is nil while
	// the Deployment is not known.
	workload labels.Selector
	hash     string
	// met is when this process found its Deployment. looked is when the last look that succeeded began. other is when one found a
	// pod of another version, and running says whether the last one found such a pod with a process in it.
	met, looked, other time.Time
	running            bool

	mixed   bool // as last told
	changed chan struct{}
}

// FleetOptions describe this replica.
type FleetOptions struct {
	Namespace string
	// Pod is the name of the pod that the process runs in. It is empty outside of a pod.
	Pod string
	// Name is the name of this replica, which stays the same when the container restarts. The default is that of the pod.
	Name string
	// Digest is a digest of everything that the replica registers.
	Digest string
}

// NewFleet returns the Fleet of a replica that has not looked yet.
func NewFleet(client dynamic.Interface, o FleetOptions) *Fleet {
	return &Fleet{
		client: client, namespace: o.Namespace, pod: o.Pod, name: cmp.Or(o.Name, o.Pod),
		self: claim{Digest: o.Digest}, changed: make(chan struct{}),
	}
}

// Name returns the name of this replica.
func (f *Fleet) Name() string { return f.name }

// claim returns the claim of this replica.
func (f *Fleet) claim() claim {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.self.normal()
}

// Mixed reports whether pods of another version of the Deployment run, were seen in the last minute, or may run for all that is
// known. It is false outside of a Deployment.
func (f *Fleet) Mixed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.isMixed(time.Now())
}

// isMixed is Mixed at a moment. The caller holds the lock.
func (f *Fleet) isMixed(now time.Time) bool {
	return f.workload != nil && (now.Sub(f.other) < mixedTime || now.Sub(f.looked) > lateTime)
}

// MayDiffer reports whether a replica of another version may get requests. Outside of a Deployment that is always so.
func (f *Fleet) MayDiffer() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.workload == nil || f.isMixed(time.Now()) || time.Since(f.other) < mendTime
}

// meet says that a replica of another version acts, whose pod may not have been seen yet.
func (f *Fleet) meet() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.other = time.Now()
}

// isAlone reports whether no process of another version runs, as far as is known.
func (f *Fleet) isAlone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.running
}

// isSeen reports whether the replicas of other versions have looked at the pods since this replica started, or know that their last look
// is too old. Before that they may deny what a replica without one of their plugins has not changed.
func (f *Fleet) isSeen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.workload == nil || time.Since(f.met) > lateTime
}

// Changed returns a channel that is closed when the claim of this replica or Mixed has changed.
func (f *Fleet) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// Reference returns the object that Events about this replica are about: its pod, or the namespace of Postern outside of a pod.
func (f *Fleet) Reference() *corev1.ObjectReference {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.uid != "" {
		return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: f.namespace, Name: f.pod, UID: f.uid}
	}
	// The API server takes Events of cluster-scoped objects only in the namespace default, unless they name a namespace.
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Namespace: f.namespace, Name: f.namespace}
}

// Installation returns the object that Events about all replicas are about: their Deployment, or the object of Reference.
func (f *Fleet) Installation() *corev1.ObjectReference {
	if c := f.claim(); !c.isProcess() {
		return &corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: f.namespace, Name: c.Deployment, UID: c.UID}
	}
	return f.Reference()
}
