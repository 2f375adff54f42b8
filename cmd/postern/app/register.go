package app

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/pkg/registration"
)

const (
	// podNameVariable is the environment variable with the name of the pod.
	podNameVariable = "POD_NAME"
	// preparePatience is how long the preparation may fail before that is reported: the API server needs some seconds to learn
	// the address of a new pod. The same reason is reported every prepareReminder, another one at most every prepareNews.
	preparePatience = 10 * time.Second
	prepareReminder = 5 * time.Minute
	prepareNews     = 30 * time.Second
	// leaveTimeout bounds the calls of the API server that a replica makes when it leaves.
	leaveTimeout = 4 * time.Second
)

// newFleet returns the replicas of Postern, of which this process is one. In a pod, the process has the name of the
// pod, which stays the same when the container restarts.
func (p *process) newFleet() (*registration.Fleet, error) {
	digest, err := p.deployment.Digest(p.services)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name of this replica: %w", err)
	}
	pod := os.Getenv(podNameVariable)
	fleet := registration.NewFleet(p.cluster.dynamic, registration.FleetOptions{
		Namespace: p.webhookNamespace, Pod: pod, Name: cmp.Or(pod, fmt.Sprintf("%s-%d", host, p.securePort)), Digest: digest,
	})
	p.fleet.Store(fleet)
	return fleet, nil
}

// mixed reports whether a replica of another version may get requests by the Service. Behind a URL, nothing is known of the
// requests that the others get.
func (p *process) mixed() bool {
	fleet := p.fleet.Load()
	return fleet != nil && p.deployment.URL == "" && fleet.MayDiffer()
}

// register removes the configurations that this replica does not serve, and this replica may then become ready. It
// keeps the configurations of the enabled services registered.
func (p *process) register(ctx context.Context, fleet *registration.Fleet, synced, prepared *flagged) error {
	// What this replica registers, it must be able to serve.
	select {
	case <-ctx.Done():
		return nil
	case <-synced.done():
	}
	recorder := p.recorder(ctx)
	if !p.prepareRegistration(ctx, fleet, prepared, recorder) {
		return nil
	}
	prepared.set()
	var looking sync.WaitGroup
	defer looking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	looking.Go(func() { fleet.Run(ctx) })
	p.registrar.Report = func(err error) {
		recorder.Eventf(fleet.Reference(), corev1.EventTypeWarning, registration.EventNotRegistered, "The webhooks are not registered: %v", err)
	}
	p.notices.start(recorder, func() *corev1.ObjectReference {
		if !p.registrar.HasNamespace() {
			return nil // There is no place for an Event.
		}
		return fleet.Installation()
	})
	return p.registrar.Run(ctx, p.probe())
}

// prepareRegistration returns true once this replica may become ready, and false if ctx ends first. Whoever looks at a rollout that
// stands still sees the reason in the log, in an Event of the pod and in /readyz.
func (p *process) prepareRegistration(ctx context.Context, fleet *registration.Fleet, prepared *flagged, recorder record.EventRecorder) bool {
	started, told, last := time.Now(), time.Time{}, ""
	for {
		err := p.registrar.Prepare(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		prepared.because(err)
		klog.FromContext(ctx).V(2).Info("Not ready yet", "err", err)
		now := time.Now()
		quiet := prepareReminder
		if err.Error() != last {
			quiet = prepareNews // Some errors have a new text each time, for example a port.
		}
		if now.Sub(started) > preparePatience && now.Sub(told) > quiet {
			told, last = now, err.Error()
			klog.FromContext(ctx).Error(err, "Could not prepare the registration")
			recorder.Eventf(fleet.Reference(), corev1.EventTypeWarning, registration.EventNotRegistered, "The replica does not become ready: %v", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(reachPause):
		}
	}
}

// probe returns a func that finds out whether the API server can call this Postern. Only the API server itself can
// tell. Behind a URL, Postern calls itself: nothing is known of the network between the API server and the URL.
func (p *process) probe() func(context.Context) error {
	self := p.deployment.Probe(p.cluster.client, bundle{p.certs}, p.cluster.time)
	if p.deployment.URL != "" {
		return self
	}
	return func(ctx context.Context) error {
		if err := self(ctx); err != nil {
			return err
		}
		return p.registrar.Called(ctx)
	}
}

// leave makes this replica unready and stops the registration by it.
func (p *process) leave(ctx context.Context) {
	p.health.draining.Store(true)
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if err := p.registrar.Leave(ctx, p.deregister); err != nil {
		klog.FromContext(ctx).Error(err, "Could not leave the registration to the other replicas")
	}
}
