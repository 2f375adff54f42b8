package registration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	// lookInterval is the time between two looks at the pods. There are few, and a watch that stands still looks like one on
	// which nothing happens. lookTimeout bounds one.
	lookInterval = 2 * time.Second
	lookTimeout  = 5 * time.Second
	// lateTime is the age from which the last look tells nothing any more.
	lateTime = 6 * time.Second
)

var (
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	replicaSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
)

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
