package registration

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
)

const (
	// lookInterval is the time between two looks at the pods. lookTimeout bounds one.
	lookInterval = 2 * time.Second
	lookTimeout  = 5 * time.Second
	// lateTime is the age from which the last look tells nothing any more.
	lateTime = 6 * time.Second
	// mixedTime is how long the last pod of another version still counts after it has gone: an object that it has mutated may be
	// validated later.
	mixedTime = time.Minute
	// mendTime is how long plugins go on to mend: each replica finds out by itself that mixedTime is over, and then adds mutating halves.
	mendTime = mixedTime + 10*time.Second
)

var (
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	replicaSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
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

// Run looks at the pods until ctx ends.
func (f *Fleet) Run(ctx context.Context) {
	log, failed := klog.FromContext(ctx), false
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		err := f.Look(ctx)
		if err != nil && ctx.Err() == nil && !failed {
			log.Error(err, "Could not look at the replicas, which may be of other versions until then")
		}
		failed = err != nil
	}, lookInterval, 0.2, true)
}

// Look finds out to which revision of which Deployment this replica belongs, and whether pods of other versions of it run.
func (f *Fleet) Look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	now := time.Now()
	before := f.claim()
	err := f.locate(ctx)
	if err == nil {
		err = f.lookAround(ctx, now)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	mixed := f.isMixed(time.Now())
	if mixed != f.mixed {
		klog.FromContext(ctx).Info("Looked at the replicas", "otherVersionsMayRun", mixed)
	}
	if mixed != f.mixed || f.self.normal() != before {
		f.mixed = mixed
		close(f.changed)
		f.changed = make(chan struct{})
	}
	return err
}

// locate finds out to which revision of which Deployment this replica belongs. A Deployment that is known stays known,
// also if the pod is not found, as after a restore of the API server's data, or if its ReplicaSet has no owner any more.
func (f *Fleet) locate(ctx context.Context) error {
	if f.pod == "" {
		return nil
	}
	var pod corev1.Pod
	if found, err := f.get(ctx, pods, f.pod, &pod); err != nil || !found {
		return err
	}
	f.mu.Lock()
	f.uid = pod.UID
	f.mu.Unlock()
	owner := metav1.GetControllerOf(&pod)
	if owner == nil || owner.Kind != "ReplicaSet" {
		return nil
	}
	var set appsv1.ReplicaSet
	if found, err := f.get(ctx, replicaSets, owner.Name, &set); err != nil || !found {
		return err
	}
	d := metav1.GetControllerOf(&set)
	if d == nil || d.Kind != "Deployment" || set.Spec.Selector == nil {
		return nil
	}
	// A rollback gives an old ReplicaSet a new revision.
	revision, err := strconv.ParseInt(set.Annotations[revisionOfDeployment], 10, 64)
	if err != nil || revision < 1 {
		return nil // The Deployment controller has not numbered it yet.
	}
	own := set.Spec.Selector.DeepCopy()
	hash := own.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey]
	maps.DeleteFunc(own.MatchLabels, func(key, _ string) bool { return key == appsv1.DefaultDeploymentUniqueLabelKey })
	workload, err := metav1.LabelSelectorAsSelector(own)
	if err != nil {
		return fmt.Errorf("the selector of ReplicaSet %s/%s: %w", f.namespace, set.Name, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.workload == nil {
		f.met = time.Now()
	}
	f.self.Deployment, f.self.UID, f.self.Revision = d.Name, d.UID, revision
	f.workload, f.hash = workload, hash
	return nil
}

// lookAround finds out whether pods of other versions run.
func (f *Fleet) lookAround(ctx context.Context, now time.Time) error {
	all, err := f.list(ctx)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked, f.running = now, false
	for _, p := range all {
		if p.Name != f.pod && p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != f.hash && !isFinished(p) {
			f.other, f.running = now, f.running || isRunning(p)
		}
	}
	return nil
}

// isLast reports whether no process of another pod of the Deployment goes on. Outside of a Deployment nothing is known of
// others. It asks the API server, because two replicas may leave at the same moment.
func (f *Fleet) isLast(ctx context.Context) (bool, error) {
	all, err := f.list(ctx)
	return !slices.ContainsFunc(all, func(p *corev1.Pod) bool { return p.Name != f.pod && isRunning(p) }), err
}

// list returns the pods of the Deployment.
func (f *Fleet) list(ctx context.Context) ([]*corev1.Pod, error) {
	f.mu.Lock()
	workload := f.workload
	f.mu.Unlock()
	if workload == nil {
		return nil, nil
	}
	list, err := f.client.Resource(pods).Namespace(f.namespace).List(ctx, metav1.ListOptions{LabelSelector: workload.String()})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of Postern in namespace %s: %w", f.namespace, err)
	}
	var out []*corev1.Pod
	for i := range list.Items {
		var p corev1.Pod
		if err := decode(&list.Items[i], &p); err != nil {
			return nil, err
		}
		out = append(out, &p)
	}
	return out, nil
}

// isFinished reports whether the containers of a pod have ended for good.
func isFinished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// isRunning reports whether a process runs in a pod, and goes on.
func isRunning(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && !isFinished(p) &&
		slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil })
}

// get reads an object of the namespace into out. It returns false if there is none.
func (f *Fleet) get(ctx context.Context, gvr schema.GroupVersionResource, name string, out any) (bool, error) {
	u, err := f.client.Resource(gvr).Namespace(f.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s %s/%s of this replica: %w", gvr.Resource, f.namespace, name, err)
	}
	return true, decode(u, out)
}

func decode(u *unstructured.Unstructured, out any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return fmt.Errorf("decoding %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
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
