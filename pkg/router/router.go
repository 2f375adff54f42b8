package router

import (
	"context"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/postern-dev/postern/internal/reuse"
	"github.com/postern-dev/postern/internal/sparselog"
)

// Router is the http.Handler of the secure port. It answers only at the paths of
// its services.
//
// Both halves of every service are served. A half that is not enabled admits every
// request. During a rollout the API server may call a half that only the new
// replica has enabled, and the old replica must not refuse that request.
type Router struct {
	// halves maps exact paths to halves. A ServeMux would redirect paths that are
	// not clean, and an API server does not follow redirects.
	halves map[string]*half
	// canary is the path of the canary, see CanaryPath.
	canary  string
	metrics *Metrics
	// segments returns the accepted segments of the paths, see WithSegments.
	segments func() []string
	limits   Limits
	// timeout is the registered time-out, see WithTimeout.
	timeout time.Duration
	// namespace is Postern's own, see WithNamespace.
	namespace string
	slots     slots
	// bodies bounds the memory of bodies, envelopes and answers. memory bounds the
	// memory of decisions.
	bodies, memory *budget
	// turns has one item for each class of requests, for the one that reads a large answer of an API server.
	turns *budget
	calls calls
	// Unauthenticated callers can cause each of these messages as often as they
	// like, so their rate is limited.
	rejections, failures, panics *sparselog.Limiter
	// answers has the memory of earlier answers.
	answers reuse.Buffers
}

// New returns a router that serves the given services. It returns an error if a
// service can never work, or if two services have the same path or configuration
// name.
func New(services []AdmissionService, m *Metrics, options ...Option) (*Router, error) {
	r := &Router{
		halves: map[string]*half{}, metrics: m, turns: newBudget(2),
		rejections: sparselog.New(1), failures: sparselog.New(1), panics: sparselog.New(1),
	}
	for _, set := range options {
		set(r)
	}
	r.slots.limit = r.limits.Requests
	r.calls = calls{maxWaiting: (r.limits.Requests + waitingShare - 1) / waitingShare, tenants: map[tenant]*queue{}}
	r.bodies = newBudget(r.limits.Bytes / bodyShare)
	r.memory = newBudget(r.limits.Bytes - r.limits.Bytes/bodyShare)
	m.setLimits(r.limits)
	r.serveCanary()
	paths, names := map[string]bool{canaryService: true}, map[string]bool{}
	for _, s := range services {
		if err := s.check(); err != nil {
			return nil, err
		}
		if paths[s.Path] || isCanary(s.Path) {
			return nil, fmt.Errorf("service %s: the path is taken", s.Path)
		}
		paths[s.Path] = true
		for _, name := range s.configNames() {
			if names[name] {
				return nil, fmt.Errorf("service %s: another service has the webhook configuration %s", s.Path, name)
			}
			names[name] = true
		}
		r.serve(s, PhaseMutate, s.Mutate)
		r.serve(s, PhaseValidate, s.Validate)
	}
	return r, nil
}

// serve adds a half of a service.
func (r *Router) serve(s AdmissionService, phase string, decide AdmitFunc) {
	r.halves[s.Path+"/"+phase] = r.newHalf(s, phase, decide)
}

// newHalf returns a half of a service. A half that is not enabled has no AdmitFunc.
func (r *Router) newHalf(s AdmissionService, phase string, decide AdmitFunc) *half {
	if decide == nil {
		decide = admitAll
	} else {
		r.metrics.start(s.Path, phase)
	}
	return &half{router: r, service: s.Path, phase: phase, admit: decide, objects: s.Objects, series: r.metrics.of(s.Path, phase), timeout: s.timeout(phase, r.timeout)}
}

// timeout returns the time-out with which a half is registered: the shortest that its configuration has, or else that of the
// deployment.
func (s AdmissionService) timeout(phase string, deployment time.Duration) time.Duration {
	shortest := deployment
	use := func(seconds *int32) {
		if seconds != nil {
			shortest = min(shortest, time.Duration(*seconds)*time.Second)
		}
	}
	if phase == PhaseMutate && s.MutatingConfig != nil {
		for i := range s.MutatingConfig.Webhooks {
			use(s.MutatingConfig.Webhooks[i].TimeoutSeconds)
		}
	}
	if phase == PhaseValidate && s.ValidatingConfig != nil {
		for i := range s.ValidatingConfig.Webhooks {
			use(s.ValidatingConfig.Webhooks[i].TimeoutSeconds)
		}
	}
	return shortest
}

func admitAll(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

func (s AdmissionService) configNames() []string {
	var names []string
	if s.MutatingConfig != nil {
		names = append(names, "mutating "+s.MutatingConfig.Name)
	}
	if s.ValidatingConfig != nil {
		names = append(names, "validating "+s.ValidatingConfig.Name)
	}
	return names
}

// ServeHTTP implements http.Handler.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path, known := r.servicePath(req.URL.Path)
	switch h := r.halves[path]; {
	case known && h != nil:
		h.ServeHTTP(w, req)
	case known && isCanary(path):
		passOn(w)
	default:
		w.Header().Set("Connection", "close") // The next call may reach a replica that serves the path.
		// The path is not in the answer: it may hold the segment.
		http.Error(w, "no admission service at this path", http.StatusNotFound)
	}
}

// Serves reports whether there is a service at a path, which the canary is not. Only who has read the registered paths knows such
// a path, if the router has keys.
func (r *Router) Serves(path string) bool {
	path, known := r.servicePath(path)
	return known && r.halves[path] != nil && !isCanary(path)
}
