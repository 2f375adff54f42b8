package router

import (
	"fmt"
	"net/http"
)

// Router is the http.Handler of the secure port. It answers at the paths of its
// services and nowhere else.
type Router struct {
	// halves is looked up by the exact path. A ServeMux would redirect paths that
	// are not clean, and an API server does not follow redirects.
	halves  map[string]*half
	metrics *Metrics
}

// New returns a router that serves the given services. A service that could
// never work, or that takes the path or a configuration name of another one, is
// an error.
func New(services []AdmissionService, m *Metrics) (*Router, error) {
	r := &Router{halves: map[string]*half{}, metrics: m}
	paths, names := map[string]bool{}, map[string]bool{}
	for _, s := range services {
		if err := s.check(); err != nil {
			return nil, err
		}
		if paths[s.Path] {
			return nil, fmt.Errorf("service %s: the path is taken", s.Path)
		}
		paths[s.Path] = true
		for _, name := range s.configNames() {
			if names[name] {
				return nil, fmt.Errorf("service %s: another service has the webhook configuration %s", s.Path, name)
			}
			names[name] = true
		}
		if s.Mutate != nil {
			r.halves[s.Path+MutatePath] = &half{router: r, service: s.Path, phase: PhaseMutate, admit: s.Mutate}
		}
		if s.Validate != nil {
			r.halves[s.Path+ValidatePath] = &half{router: r, service: s.Path, phase: PhaseValidate, admit: s.Validate}
		}
	}
	return r, nil
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
	h, ok := r.halves[req.URL.Path]
	if !ok {
		http.Error(w, fmt.Sprintf("no admission service at %q", req.URL.Path), http.StatusNotFound)
		return
	}
	h.ServeHTTP(w, req)
}
