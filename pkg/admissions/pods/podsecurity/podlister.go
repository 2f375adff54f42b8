package podsecurity

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/postern-dev/postern/internal/footprint"
	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/internal/reads"
)

const (
	// pageSize is the largest number of pods per page of a list. A page that takes too much memory is read again with one of
	// shrink pods.
	pageSize = 100
	shrink   = 10
)

// errTooMany is returned for a namespace whose pods do not fit into the memory of one request.
var errTooMany = errors.New("the pods need more memory than one request may have")

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
	for options := (metav1.ListOptions{Limit: pageSize}); ; {
		page, next, err := l.page(ctx, namespace, options)
		switch {
		case errors.Is(err, reads.ErrTooLarge) && options.Limit > 1:
			options.Limit /= shrink
			continue
		case err != nil:
			return nil, err
		}
		pods = append(pods, page...)
		options.Limit = min(options.Limit*shrink, pageSize)
		if options.Continue = next; next == "" {
			return pods, nil
		}
	}
}

// trim removes large fields that no check reads.
func trim(pod *corev1.Pod) {
	pod.ManagedFields, pod.Status = nil, corev1.PodStatus{}
	pod.Spec.Affinity, pod.Spec.Tolerations, pod.Spec.TopologySpreadConstraints = nil, nil, nil
	for c := range podspec.EachContainer(&pod.Spec) {
		c.Env, c.EnvFrom, c.Args, c.Command, c.VolumeMounts = nil, nil, nil, nil, nil
	}
}

// page returns a page of the list, without the fields that no check reads. The memory of the pods is held until the request
// ends, and that of the fields only while the page is read. It does not wait for calls of other requests, because other lists
// wait for this one.
func (l *podLister) page(ctx context.Context, namespace string, options metav1.ListOptions) (pods []*corev1.Pod, next string, err error) {
	reading, end := reads.Scope(reads.Without(ctx))
	defer end()
	page, err := l.client.CoreV1().Pods(namespace).List(reading, options)
	if err != nil {
		return nil, "", err
	}
	kept := int64(0)
	for i := range page.Items {
		pod := page.Items[i]
		trim(&pod)
		text, err := pod.Marshal()
		if err != nil {
			return nil, "", err
		}
		kept += footprint.OfProtobuf(text, reflect.TypeFor[corev1.Pod]())
		pods = append(pods, &pod)
	}
	end()
	err = reads.Hold(ctx, footprint.WithSpare(kept))
	switch {
	case errors.Is(err, reads.ErrTooLarge):
		// Smaller pages would not help.
		return nil, "", errTooMany
	case err != nil:
		return nil, "", err
	}
	return pods, page.Continue, nil
}
