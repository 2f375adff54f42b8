package registration

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// RemovedAnnotation is on a configuration that a replica is about to delete, because it does not serve it. Its value is the claim of
// the replica. Without it, somebody deletes the configuration who knows nothing of the webhooks, and it is restored.
const RemovedAnnotation = "postern.dev/removed-by"

// past is what became of a configuration.
type past int

const (
	neverSeen past = iota
	// wasRegistered configurations still are, or somebody has deleted them who knows nothing of the webhooks.
	wasRegistered
	// wasRemoved configurations were removed by a replica of another revision, and wasRemovedByPeer by one of this revision.
	wasRemoved
	wasRemovedByPeer
)

// memory knows which configurations were registered.
type memory struct {
	mu    sync.Mutex
	pasts map[configKey]past
	// byPeer is when a peer removed a configuration last.
	byPeer time.Time
}

// note remembers what became of a configuration.
func (m *memory) note(key configKey, p past) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pasts == nil {
		m.pasts = map[configKey]past{}
	}
	if m.pasts[key] = p; p == wasRemovedByPeer {
		m.byPeer = time.Now()
	}
}

// of returns what became of a configuration.
func (m *memory) of(key configKey) past {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pasts[key]
}

// clear forgets everything.
func (m *memory) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.pasts)
}

// forgive forgets what peers have removed, if that is older than age.
func (m *memory) forgive(age time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.byPeer) < age {
		return
	}
	maps.DeleteFunc(m.pasts, func(_ configKey, p past) bool { return p == wasRemovedByPeer })
}

// mustWait is the reason for which a configuration must not be added now.
type mustWait struct{ reason string }

func (e *mustWait) Error() string { return e.reason }

// mayAdd returns nil if a configuration that is not registered may be added now, and otherwise a *mustWait. cached is true if the
// cache still has it.
func (r *Registrar) mayAdd(key configKey, cached bool) error {
	past, other := r.had.of(key), r.had.of(r.otherHalf(key))
	switch {
	case past == wasRemovedByPeer:
		// Whether that still runs, or goes on to register, is not known.
		return &mustWait{fmt.Sprintf("%s %s is not added, because a replica of the same version, or a process, that started later has removed it: it is added after a minute if this one has registered others, or when this one starts again", key.kind, key.name)}
	case !r.fleet.Mixed():
		return nil
	case cached:
		return &mustWait{fmt.Sprintf("%s %s was deleted, and the watch has not told yet whether by a replica of another version", key.kind, key.name)}
	case past == wasRegistered && other != wasRemoved:
		return nil
	case past == neverSeen && other == wasRegistered && key.kind == mutatingKind:
		// All replicas serve both halves, and the validating half denies what the mutating half would have changed.
		return nil
	}
	return &mustWait{fmt.Sprintf("%s %s is not added while replicas of another version may run", key.kind, key.name)}
}

// otherHalf returns the key of the other half of a service, or no key.
func (r *Registrar) otherHalf(key configKey) configKey {
	for _, s := range r.services {
		if keys := r.deployment.keys(s); len(keys) == 2 && slices.Contains(keys, key) {
			return keys[1-slices.Index(keys, key)]
		}
	}
	return configKey{}
}

// noticeRemoval learns from the last state of a configuration that another replica removed it.
func (r *Registrar) noticeRemoval(u *unstructured.Unstructured) {
	text, marked := u.GetAnnotations()[RemovedAnnotation]
	if !marked {
		return
	}
	own := r.fleet.claim()
	c, err := parseClaim(text)
	if err != nil || c == own {
		return // It is not of a replica, or of this one.
	}
	past := wasRemoved
	if c.isPeerOf(own) {
		past = wasRemovedByPeer
	}
	r.had.note(keyOf(u), past)
	if c.UID == own.UID && c.Revision != own.Revision {
		r.fleet.meet()
	}
}
