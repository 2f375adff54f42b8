// Package registration keeps the webhook configurations of AdmissionServices registered with the API server.
//
// A replica calls Prepare until that succeeds. Then it may become ready, and calls Run:
//
//	Prepare   adds the CA of this replica, and removes what it does not serve. Where others are
//	          registered, the API server has called this replica before                       prepare.go, canary.go
//	Run       syncs at once, after each change and every five minutes. The first of these
//	          that holds decides what a sync does                                             run.go, sync.go
//	  withdraw    the namespace goes: removes everything                                      standing.go, remove.go
//	  standAside  another living Deployment has registered: does nothing                      fence.go, follow.go
//	  withdraw    Postern was uninstalled: removes everything                                 uninstall.go
//	  introduce   the API server has not called Postern yet: adds only the CA                 probe.go, bundle.go
//	  yield       others register, as those of a later revision: adds nothing, but restores
//	              what they have registered if that is gone, and they are                     fence.go, follow.go
//	  register    writes what is desired, and removes what is not                             desired.go, writer.go
//	Leave     ends that. The last replica may remove everything                               remove.go
//
// What may be added while replicas of another version run is said by fleet.go and memory.go.
package registration

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/postern-dev/postern/internal/segment"
	"github.com/postern-dev/postern/pkg/router"
)

// FieldManager is the field manager of Postern in server-side apply.
const FieldManager = "postern"

// Registrar keeps the webhook configurations of the services registered. It applies
// them once the webhooks can be reached, repairs them when somebody deletes or
// edits them, and removes the configurations of services that are no longer
// enabled. Of several replicas with different services, those that the fence lets
// write. The others restore what these have registered, when no process of these
// runs any more.
type Registrar struct {
	writer

	services []router.AdmissionService
	bundle   Bundle
	segments *segment.Set
	fleet    *Fleet
	fence    *fence
	// Report, if not nil, is called with the reason for which nothing is registered,
	// from time to time.
	Report func(error)
	// Notify, if not nil, is called with what an administrator should see: the type (corev1.EventTypeNormal or
	// corev1.EventTypeWarning), the reason and the message of an Event. It must not block.
	Notify func(eventType, reason, message string)
	// CanaryPath is the path of the canary that this process serves, and no other.
	CanaryPath string
	// noticeTime is the pause between the removals of the two halves of a service.
	noticeTime time.Duration

	status  atomic.Pointer[error]
	leaving atomic.Bool
	// cancelSync cancels the requests of the last sync. It is never nil.
	cancelSync atomic.Pointer[context.CancelFunc]
	// joined is true if Prepare has found that this replica may take part.
	joined atomic.Bool
	// owned is true if the namespace existed once.
	owned   atomic.Bool
	keptOut atomic.Pointer[error]
	// unserved is when Prepare first found something registered that this replica neither serves nor may remove.
	unserved time.Time
	canary   *canary

	// uninstalled is true if a configuration was deleted by Uninstall.
	uninstalled atomic.Bool

	// mu is held during a sync. It guards the fields below, and those that writer names.
	mu sync.Mutex
	// reached is true if the API server can call this replica.
	reached bool
	// leader says who registers, if it was not this replica at the last sync.
	leader string
	// followed is what this replica knows of the registration that it yields to.
	followed followed
	// split is who has registered what, and since when, while this replica yields to another one that has written only a part. registered
	// is nil otherwise.
	split struct {
		registered map[configKey]claim
		since      time.Time
	}
	// lastCanary is the resource version of the canaries' configuration at the last sync, and canarySince when it was first seen.
	lastCanary  string
	canarySince time.Time
	// narrowed is what is known of selectors that others have added.
	narrowed narrowing
	// refused is the last report that nothing may be registered.
	refused report
	// failures is the number of failed syncs in a row.
	failures int
	// failed is the number of failures in a row of the mutating halves, by the path of the service.
	failed map[string]int
}

// NewRegistrar returns a registrar for the services. It does nothing before
// Prepare and Run.
func NewRegistrar(client dynamic.Interface, d Deployment, services []router.AdmissionService, b Bundle, s *segment.Set, fleet *Fleet, m *Metrics) *Registrar {
	r := &Registrar{
		writer:   writer{client: client, deployment: d, metrics: m, placed: map[configKey]string{}, surplus: surplus{}, repairs: repairs{}},
		services: services, bundle: b, segments: s, fleet: fleet, fence: &fence{client: client, namespace: d.Namespace},
		failed: map[string]int{}, noticeTime: noticeTime,
	}
	r.canary = &canary{registrar: r}
	r.cancelSync.Store(new(context.CancelFunc(func() {})))
	r.setStatus(errNotReached)
	r.markUnregistered() // A replica that never gets as far as Run is seen in the metrics too.
	return r
}

var errNotReached = errors.New("nobody has called this replica yet")

// Status returns nil if the webhooks of this replica, or of the replica that it yields to, are registered. Otherwise
// it returns the reason.
func (r *Registrar) Status() error { return *r.status.Load() }

// KeptOut returns nil, or the reason for which this replica must not be ready: after it was, another Deployment registered.
func (r *Registrar) KeptOut() error {
	if err := r.keptOut.Load(); err != nil {
		return *err
	}
	return nil
}

// HasNamespace reports whether the namespace of Postern exists, or did. A Postern that is called by its URL needs none.
func (r *Registrar) HasNamespace() bool { return r.owned.Load() }

func (r *Registrar) setStatus(err error) { r.status.Store(&err) }

// keys returns the keys of the configurations of all services.
func (r *Registrar) keys() []configKey {
	var keys []configKey
	for _, s := range r.services {
		keys = append(keys, r.deployment.keys(s)...)
	}
	return keys
}

// markUnregistered sets the metric of all configurations to 0.
func (r *Registrar) markUnregistered() {
	r.forgetNarrowed()
	for _, key := range r.keys() {
		r.metrics.setRegistered(key.kind, key.name, false)
	}
}
