package registration

import (
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// RemovedAnnotation is on a configuration that a replica is about to delete, because it does not serve it. Its value is the claim of
// the replica. Without it, somebody deletes the configuration who knows nothing of the webhooks, and it is restored.
const RemovedAnnotation = "postern.dev/removed-by"

// memory knows which configurations were registered.
type memory struct {
	mu sync.Mutex
	// had is true for the configurations that were registered, and false for those that a peer has removed since. Those that other
	// replicas have removed are not in it.
	had map[configKey]bool
}

func keyOf(u *unstructured.Unstructured) configKey { return configKey{u.GetKind(), u.GetName()} }

func (m *memory) see(key configKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.had == nil {
		m.had = map[configKey]bool{}
	}
	m.had[key] = true
}

// forget says that another replica has removed a configuration.
func (m *memory) forget(key configKey, byPeer bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.had, key)
	if byPeer && m.had != nil {
		m.had[key] = false
	}
}

// forgive forgets what peers have removed.
func (m *memory) forgive() {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.had, func(_ configKey, had bool) bool { return !had })
}

func (m *memory) holds(key configKey) (had, removedByPeer bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	had, known := m.had[key]
	return had, known && !had
}

// mustWait is the reason for which a configuration must not be added now.
type mustWait struct{ reason string }

func (e *mustWait) Error() string { return e.reason }

// mayAdd returns nil if a configuration that is not registered may be added now, and otherwise a *mustWait.
func (r *Registrar) mayAdd(key configKey) error {
	had, removedByPeer := r.had.holds(key)
	switch {
	case removedByPeer:
		// Whether that still runs is not known.
		return &mustWait{fmt.Sprintf("%s %s is not added, because a replica of the same version, or a process, that started later has removed it: start this one again", key.kind, key.name)}
	case !had && r.fleet.Mixed():
		return &mustWait{fmt.Sprintf("%s %s is not added while replicas of another version may run", key.kind, key.name)}
	}
	return nil
}

// noticeRemoval learns from the last state of a configuration that another replica removed it.
func (r *Registrar) noticeRemoval(u *unstructured.Unstructured) {
	text, removed := u.GetAnnotations()[RemovedAnnotation]
	if !removed {
		return
	}
	own := r.fleet.claim()
	var c claim
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return // It is not of a replica.
	}
	if c = c.normal(); c == own {
		return
	}
	r.had.forget(keyOf(u), c.isPeerOf(own))
	if c.UID == own.UID && c.Revision != own.Revision {
		r.fleet.meet()
	}
}
