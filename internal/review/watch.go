package review

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/dispatch"
)

// Watch collects what plugins needed and did not know, for each request. Its Observe is that of the Deps of the plugins.
type Watch struct {
	mu       sync.Mutex
	requests map[types.UID]*seen
}

// seen is what is not known for one request.
type seen struct {
	mu sync.Mutex
	// pending are the reads of the plugin that runs now.
	pending []string
	unknown []Missing
	// mutating is true if a mutating plugin did not know something.
	mutating bool
}

// elsewhere has the plugins whose decisions depend on more than objects, and what that is.
var elsewhere = map[string]string{
	"FleetQuota":       "what the hub allows, and what the clusters use",
	"InitialResources": "what containers have used",
}

func (w *Watch) begin(request types.UID) *seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.requests == nil {
		w.requests = map[types.UID]*seen{}
	}
	s := &seen{}
	w.requests[request] = s
	return s
}

func (w *Watch) end(request types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.requests, request)
}

// Observe implements admit.Deps.Observe. An error that is no denial says that the plugin could not decide.
func (w *Watch) Observe(plugin string, phase admit.Phase, r *admit.Request, _ time.Duration, err error) {
	w.mu.Lock()
	s := w.requests[r.UID]
	w.mu.Unlock()
	if s == nil {
		return
	}
	if err != nil && !admit.IsDenial(err) {
		s.misses(err.Error())
	}
	if what, ok := elsewhere[plugin]; ok {
		s.misses(what)
	}
	s.assign(plugin, phase == admit.Mutating)
}

// misses notes that the plugin that runs now does not know something.
func (s *seen) misses(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, what)
}

// assign notes which plugin it was.
func (s *seen) assign(plugin string, mutating bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, what := range s.pending {
		s.add(Missing{plugin, what})
		s.mutating = s.mutating || mutating
	}
	s.pending = nil
}

func (s *seen) add(m Missing) {
	if !slices.Contains(s.unknown, m) {
		s.unknown = append(s.unknown, m)
	}
}

// all returns all that is not known about a decision.
func (s *seen) all(d *dispatch.Decision) []Missing {
	s.assign("", false)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range d.Unknown {
		s.add(Missing{u.Webhook.Name, u.Reason})
	}
	for _, c := range d.Calls {
		// What a plugin could not decide is there already.
		if c.Failure != nil && !slices.ContainsFunc(s.unknown, func(m Missing) bool { return strings.Contains(c.Failure.Cause, m.What) }) {
			s.add(Missing{c.Webhook.Name, c.Failure.Cause})
		}
		// The backend of ImagePolicyWebhook did not answer.
		if c.Response != nil && c.Response.AuditAnnotations["failed-open"] != "" {
			s.add(Missing{"ImagePolicyWebhook", "the answer of its backend"})
		}
	}
	return s.unknown
}
