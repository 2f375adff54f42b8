package parity_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admit/admittest"
	"github.com/postern-dev/postern/pkg/router"
)

// TestConditionsOnOtherRequests sends each plugin the requests of the cases of all other plugins. Those
// objects have shapes that the plugin's own cases lack.
func TestConditionsOnOtherRequests(t *testing.T) {
	all := entries(t)
	done := map[string]bool{}
	for _, e := range all {
		if len(e.Steps) == 0 || done[e.Plugin.Name] {
			continue
		}
		done[e.Plugin.Name] = true
		t.Run(e.Plugin.Name, func(t *testing.T) {
			s := serve(t, e)
			defer s.Close()
			for _, phase := range []string{router.PhaseMutate, router.PhaseValidate} {
				if s.Has(phase) {
					soundFor(t, s, phase, all)
				}
			}
		})
	}
}

// soundFor sends a phase of a plugin the requests for which the API server would not call it.
func soundFor(t *testing.T, s *admittest.Server, phase string, all []entry) {
	t.Helper()
	for _, e := range all {
		for i := range e.Steps {
			ar := requestOf(t, &e.Steps[i].Request)
			match, err := s.Match(t.Context(), phase, ar)
			if err != nil {
				t.Errorf("%s of %s: %v", phase, e.name(), err)
			}
			if !match.Addressed || match.Called {
				continue
			}
			s.ClearActions()
			if err := s.Silent(s.Post(t.Context(), phase, ar)); err != nil {
				t.Errorf("%s of %s: %v", phase, e.name(), err)
			}
		}
	}
}

func serve(t *testing.T, e entry) *admittest.Server {
	t.Helper()
	ctx := admittest.Context(t)
	s, err := e.Serve(ctx, e.Plugin)
	if err != nil {
		t.Fatalf("Serving the case: %v", err)
	}
	return s
}
