package rollout

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
)

// revisionOfReplicaSet is the annotation in which the Deployment controller numbers the ReplicaSets of a
// Deployment. A rollback gives the ReplicaSet that it returns to the highest number.
const revisionOfReplicaSet = "deployment.kubernetes.io/revision"

// place is where a replica runs. Its fields are zero outside of a pod.
type place struct {
	// revision is the revision of the ReplicaSet of the replica's pod. It is 0 if the pod does not belong to the
	// ReplicaSet of a Deployment.
	revision int64
	// pod refers to the pod.
	pod *metav1ac.OwnerReferenceApplyConfiguration
	// deployment refers to the Deployment of the ReplicaSet.
	deployment *corev1.ObjectReference
}

// find returns the place of this replica.
func (r *Replicas) find(ctx context.Context) (place, error) {
	if r.options.Pod == "" {
		return place{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pod, err := r.options.Client.CoreV1().Pods(r.options.Namespace).Get(ctx, r.options.Pod, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return place{}, nil
	}
	if err != nil {
		return place{}, fmt.Errorf("reading our pod %s/%s: %w", r.options.Namespace, r.options.Pod, err)
	}
	at := place{pod: metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("Pod").WithName(pod.Name).WithUID(pod.UID)}
	controller := metav1.GetControllerOf(pod)
	if controller == nil || controller.Kind != "ReplicaSet" {
		return at, nil
	}
	set, err := r.options.Client.AppsV1().ReplicaSets(r.options.Namespace).Get(ctx, controller.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return at, nil
	}
	if err != nil {
		return place{}, fmt.Errorf("reading our ReplicaSet %s/%s: %w", r.options.Namespace, controller.Name, err)
	}
	if d := metav1.GetControllerOf(set); d != nil && d.Kind == "Deployment" {
		at.deployment = &corev1.ObjectReference{APIVersion: d.APIVersion, Kind: d.Kind, Namespace: set.Namespace, Name: d.Name, UID: d.UID}
	}
	if revision, err := strconv.ParseInt(set.Annotations[revisionOfReplicaSet], 10, 64); err == nil {
		at.revision = revision
	}
	return at, nil
}
