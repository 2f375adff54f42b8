package podsecurity

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// pageSize is the number of pods per page of a list.
	pageSize = 100
	// maxBytes is the largest total size of the pods of a namespace, in the encoding of etcd. It suffices for thousands
	// of pods.
	maxBytes = 32 << 20
)

// podLister lists the pods of a namespace whose level is raised. It asks the API server, as the library's own webhook
// does: such updates are too rare for a cache of all pods. It lists one namespace at a time, because whoever may label
// namespaces decides how often.
type podLister struct {
	client kubernetes.Interface
	busy   chan struct{}
}

func newPodLister(client kubernetes.Interface) *podLister {
	return &podLister{client, make(chan struct{}, 1)}
}

// ListPods implements admission.PodLister. The library ends ctx after a second, or when it has evaluated the pods. The
// next list can begin then.
func (l *podLister) ListPods(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
	select {
	case l.busy <- struct{}{}:
		context.AfterFunc(ctx, func() { <-l.busy })
	case <-ctx.Done():
		return nil, fmt.Errorf("another namespace is being checked: %w", ctx.Err())
	}
	var pods []*corev1.Pod
	bytes := 0
	for options := (metav1.ListOptions{Limit: pageSize}); ; {
		page, err := l.client.CoreV1().Pods(namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			pod := &page.Items[i]
			// No check reads these fields.
			pod.ManagedFields, pod.Status = nil, corev1.PodStatus{}
			pods = append(pods, pod)
			if bytes += pod.Size(); bytes > maxBytes {
				return nil, fmt.Errorf("the pods have more than %d MiB", maxBytes>>20)
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return pods, nil
		}
	}
}
