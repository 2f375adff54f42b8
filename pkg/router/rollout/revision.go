package rollout

import (
	"context"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
)

// revisionOfReplicaSet is the annotation in which the Deployment controller numbers the ReplicaSets of a
// Deployment. A rollback gives the ReplicaSet that it returns to the highest number.
const revisionOfReplicaSet = "deployment.kubernetes.io/revision"

// revision returns the revision of the ReplicaSet that this replica's pod belongs to, and a reference to the pod. The
// revision is 0, and there is no reference, if there is no such pod. The revision is 0 if the pod belongs to anything
// but the ReplicaSet of a Deployment.
func (r *Replicas) revision(ctx context.Context) (int64, *metav1ac.OwnerReferenceApplyConfiguration, error) {
	if r.options.Pod == "" {
		return 0, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pod, err := r.options.Client.CoreV1().Pods(r.options.Namespace).Get(ctx, r.options.Pod, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil, nil
	}
	if err != nil {
		return 0, nil, fmt.Errorf("reading our pod %s/%s: %w", r.options.Namespace, r.options.Pod, err)
	}
	owner := metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("Pod").WithName(pod.Name).WithUID(pod.UID)
	controller := metav1.GetControllerOf(pod)
	if controller == nil || controller.Kind != "ReplicaSet" {
		return 0, owner, nil
	}
	set, err := r.options.Client.AppsV1().ReplicaSets(r.options.Namespace).Get(ctx, controller.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, owner, nil
	}
	if err != nil {
		return 0, nil, fmt.Errorf("reading our ReplicaSet %s/%s: %w", r.options.Namespace, controller.Name, err)
	}
	revision, err := strconv.ParseInt(set.Annotations[revisionOfReplicaSet], 10, 64)
	if err != nil {
		// The ReplicaSet belongs to no Deployment.
		return 0, owner, nil
	}
	return revision, owner, nil
}
