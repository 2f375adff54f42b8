package registration

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
)

const (
	// observeTime is how long an attempt waits for the API server to observe the canary webhook, observeInterval how often it
	// asks.
	observeTime     = 3 * time.Second
	observeInterval = 200 * time.Millisecond
	// refusedTime is how long a canary must be impossible, for a reason that may be gone in a moment, before the replica goes on
	// without.
	refusedTime = 10 * time.Second
	// abandonedTime is how long the configuration of the canaries stays if nobody changes it. A replica that needs it applies it
	// again.
	abandonedTime = 5 * time.Minute
)

var errNotObserved = errors.New("the API server has not observed the canary webhook yet")

// canary has the API server call this process. A request from a pod does not show that the API server can: between the two
// there may be a firewall, or no route at all. The answer of another replica does not show it either.
//
// The canary is a webhook that fails closed and matches only a dry-run creation of a Lease in Postern's namespace with a
// label of this process's choice. Its path is served by this process alone. Postern answers the webhook with a denial,
// which the API server passes on.
//
// The canaries of all replicas are webhooks of one configuration, whose name is constant, so that a role can name it. A
// replica that loses its webhook because another replica removes the configuration applies it again at its next attempt.
type canary struct {
	registrar *Registrar
	// called is true if the API server called this process.
	called bool
	// impossible is when the attempts began of which none could be made. logged is the reason that was logged last.
	impossible time.Time
	logged     string
}

// noCanary is the reason for which a canary cannot be made. Whether the API server can call this replica is then not known.
type noCanary struct {
	reason error
	// transient is true if the reason may be gone in a moment.
	transient bool
}

func (e *noCanary) Error() string { return e.reason.Error() }

func (e *noCanary) Unwrap() error { return e.reason }

// Called returns nil once the API server has called this process, which is ready. It also returns nil if no canary can be made,
// and then says so in the log and in a metric: somebody may refuse it.
func (r *Registrar) Called(ctx context.Context) error {
	// Where there is no Service for canaries, a replica that is ready can be called by the Service of the webhooks.
	return r.canary.await(ctx, r.deployment.Service)
}

// await has the API server call this process by the Service for canaries, or else by another Service if its name is not empty.
func (c *canary) await(ctx context.Context, fallback string) error {
	if c.called {
		return nil
	}
	// The API server may wait for an answer until the time-out of the webhook.
	attempt, cancel := context.WithTimeout(ctx, observeTime+2*c.registrar.deployment.Timeout)
	defer cancel()
	err := c.call(attempt, fallback)
	without, ok := errors.AsType[*noCanary](err)
	if !ok {
		c.impossible = time.Time{}
		if err == nil {
			c.called = true
			klog.FromContext(ctx).Info("The API server called this replica")
		}
		return err
	}
	if c.impossible.IsZero() {
		c.impossible = time.Now()
	}
	if without.transient && time.Since(c.impossible) < refusedTime {
		return err
	}
	c.skip(ctx, without)
	return nil
}

// skip says that a rollout does not wait for the canary.
func (c *canary) skip(ctx context.Context, reason *noCanary) {
	c.registrar.metrics.setCanarySkipped(true)
	if c.logged != reason.Error() {
		c.logged = reason.Error()
		klog.FromContext(ctx).Info("Warning: it is not known whether the API server can call a replica before it is ready", "reason", c.logged)
	}
}

func (c *canary) call(ctx context.Context, fallback string) error {
	r := c.registrar
	service, err := c.service(ctx)
	if without, ok := errors.AsType[*noCanary](err); ok && fallback != "" {
		c.skip(ctx, without)
		service, err = fallback, nil
	}
	if err != nil {
		return err
	}
	config, err := c.config(ctx, service)
	if err != nil {
		return err
	}
	for start := time.Now(); ; sleep(ctx, observeInterval) {
		if err = c.apply(ctx, config); apierrors.IsForbidden(err) {
			return &noCanary{err, true}
		} else if err == nil {
			err = c.request(ctx, service, config)
		}
		if !errors.Is(err, errNotObserved) || time.Since(start) >= observeTime || ctx.Err() != nil {
			break
		}
	}
	if err == nil && service == r.deployment.CanaryService() {
		r.metrics.setCanarySkipped(false)
	}
	// Others that need the configuration apply it again. What somebody made invalid is also made again.
	if _, without := errors.AsType[*noCanary](err); err == nil || without || apierrors.IsInvalid(err) {
		if left := remove(ctx, r.client, resources()[validatingKind], config.GetName(), metav1.DeleteOptions{}); left != nil {
			klog.FromContext(ctx).Info("Could not remove the canary, which is harmless", "err", left)
		}
	}
	return err
}

// service returns the name of the Service for canaries.
func (c *canary) service(ctx context.Context) (string, error) {
	r := c.registrar
	d := r.deployment
	service, err := r.client.Resource(coreServices).Namespace(d.Namespace).Get(ctx, d.CanaryService(), metav1.GetOptions{})
	if err != nil {
		err = fmt.Errorf("reading Service %s/%s: %w", d.Namespace, d.CanaryService(), err)
		if forbidden := apierrors.IsForbidden(err); forbidden || apierrors.IsNotFound(err) {
			err = &noCanary{err, forbidden}
		}
		return "", err
	}
	if err := c.selected(ctx, service); err != nil {
		return "", err
	}
	valid, err := r.bundle.ValidFor(d.CanaryHost())
	if err == nil && !valid {
		err = &noCanary{fmt.Errorf("the serving certificate is not valid for %s", d.CanaryHost()), true}
	}
	return d.CanaryService(), err
}

// selected returns an error if a Service cannot lead to this replica: the manifest of the pod may be of an older version.
func (c *canary) selected(ctx context.Context, service *unstructured.Unstructured) error {
	r := c.registrar
	selector, _, err := unstructured.NestedStringMap(service.Object, "spec", "selector")
	if err != nil || len(selector) == 0 {
		return nil //nolint:nilerr // Somebody else leads it to the replicas.
	}
	pod, err := r.client.Resource(pods).Namespace(r.deployment.Namespace).Get(ctx, r.fleet.Name(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil // It is not in a pod, or does not know of it.
	case err != nil:
		return fmt.Errorf("reading the pod of this replica: %w", err)
	case !labels.SelectorFromSet(selector).Matches(labels.Set(pod.GetLabels())):
		return &noCanary{fmt.Errorf("pod %s lacks the labels that Service %s selects, %s", pod.GetName(), service.GetName(), labels.Set(selector)), false}
	}
	return nil
}
