package namespaceautoprovision

import (
	"context"
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/pkg/admit"
)

const (
	// probeTries is the number of attempts while the API server does not answer.
	// probePause is the pause between two attempts.
	probeTries = 5
	probePause = 5 * time.Second
)

// probe finds out whether the plugin can work. The API server's own
// NamespaceLifecycle denies creations in a missing namespace before it calls
// webhooks. Users of a managed cluster cannot see whether NamespaceLifecycle is
// enabled.
type probe struct {
	client typedcorev1.EventsGetter
	clock  clock.Clock
}

func newProbe(d admit.Deps) probe { return probe{d.Client.CoreV1(), d.Clock} }

// run asks until the API server answers, and logs the result.
func (p probe) run(ctx context.Context) {
	log := klog.FromContext(ctx).WithValues("plugin", "NamespaceAutoProvision")
	namespace := "postern-probe-" + utilrand.String(10)
	err := p.ask(ctx, namespace)
	for tries := 1; isAway(err) && tries < probeTries && p.pause(ctx); tries++ {
		err = p.ask(ctx, namespace)
	}
	switch {
	case ctx.Err() != nil:
	case err == nil:
		log.V(2).Info("The API server calls webhooks for what is created in a namespace that does not exist")
	case isMissing(err, namespace):
		log.Info("Warning", "message", "NamespaceAutoProvision cannot work here, because the API server refuses what is created in a "+
			"namespace that does not exist before it calls Postern: it runs NamespaceLifecycle itself, or has a webhook with a namespaceSelector")
	default:
		log.Info("Could not find out whether NamespaceAutoProvision can work here", "err", err)
	}
}

// ask creates an event in a missing namespace as a dry run. Postern registers no webhook for events.
func (p probe) ask(ctx context.Context, namespace string) error {
	now := metav1.NewTime(p.clock.Now())
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: "probe"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: "probe"},
		Reason:         "Probe", Message: "Is there a NamespaceLifecycle?", Type: corev1.EventTypeNormal,
		Source: corev1.EventSource{Component: "postern"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	_, err := p.client.Events(namespace).Create(ctx, event, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// pause waits, and reports whether to retry.
func (p probe) pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-p.clock.After(probePause):
		return true
	}
}

// isAway reports whether the API server failed to answer.
func isAway(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if err == nil || !ok {
		return err != nil
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
}

func isMissing(err error, namespace string) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsNotFound(err) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name == namespace
}
