package registration

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The reasons of the Events that a Registrar reports.
const (
	EventRegistered   = "Registered"
	EventChanged      = "Changed"
	EventRepaired     = "Repaired"
	EventDeregistered = "Deregistered"
	// EventUninstalled is a Warning: this replica runs, and registers nothing because of an uninstall.
	EventUninstalled = "Uninstalled"
	// EventNotRegistered is a Warning: another Deployment registers, or the API server cannot call this replica.
	EventNotRegistered = "NotRegistered"
	// EventDiffers is a Warning: replicas of one revision register different webhooks.
	EventDiffers = "ConfigurationDiffers"
	// EventNarrowed is a Warning: others have added selectors to webhooks, for which plugins do not see all requests.
	EventNarrowed = "Narrowed"
)

// news collects what happened to the configurations. One Event for each reason then tells all of it: recorders drop
// Events if there are many about an object.
type news struct {
	mu       sync.Mutex
	byReason map[string][]string
}

func (n *news) add(reason, kind, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byReason == nil {
		n.byReason = map[string][]string{}
	}
	n.byReason[reason] = append(n.byReason[reason], halfOf(kind, name))
}

// halfOf returns how messages name a configuration.
func halfOf(kind, name string) string {
	if kind == validatingKind {
		return "validating " + name
	}
	return "mutating " + name
}

func (n *news) take() map[string][]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.byReason
	n.byReason = nil
	return all
}

// tell reports what happened since the last call.
func (r *Registrar) tell() {
	all := r.news.take()
	for _, reason := range slices.Sorted(maps.Keys(all)) {
		names := slices.Sorted(slices.Values(all[reason]))
		if reason == EventRepaired {
			r.notify(corev1.EventTypeWarning, reason, "Somebody changed or deleted webhook configurations, which were repaired: "+strings.Join(names, ", "))
		} else {
			r.notify(corev1.EventTypeNormal, reason, reason+" webhook configurations: "+strings.Join(names, ", "))
		}
	}
}

// report is a refusal that was reported, and when.
type report struct {
	refusal string
	at      time.Time
}

// isDue reports whether a refusal must be reported: for the first time, or once more at about every resyncTime, because the replicas
// of an installation that was uninstalled are ready, and nothing else shows it. There are more syncs than that, and recorders drop
// Events if there are many about an object.
func (l *report) isDue(refusal error) bool {
	due := refusal.Error() != l.refusal || time.Since(l.at) > resyncTime/2
	if due {
		*l = report{refusal.Error(), time.Now()}
	}
	return due
}

// tellRefusal reports that nothing may be registered. No Event can be created in a terminating namespace.
func (r *Registrar) tellRefusal(refusal error) {
	if !errors.Is(refusal, errNamespaceGone) {
		r.notify(corev1.EventTypeWarning, EventUninstalled, "The webhooks are not registered: "+refusal.Error())
	}
}

// endRefusal forgets the last refusal, because something is registered, or will be.
func (r *Registrar) endRefusal() {
	r.refused = report{}
	r.metrics.setUninstalled(false)
}

func (r *Registrar) notify(eventType, reason, message string) {
	if r.Notify != nil {
		r.Notify(eventType, reason, message)
	}
}
