package parity_test

import (
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/postern-dev/postern/internal/conditions"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	"github.com/postern-dev/postern/pkg/router"
)

// TestConditionsOnOtherRequests sends each plugin the requests of the cases of all other plugins. Those
// objects have shapes that the plugin's own cases lack.
func TestConditionsOnOtherRequests(t *testing.T) {
	all := entries(t)
	requests := requestsOf(t, all)
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
					soundFor(t, s, phase, requests)
				}
			}
		})
	}
}

// prepared is a request that is decoded once for all plugins, because that takes longer than its evaluation.
type prepared struct {
	name    string
	request *admissionv1.AdmissionRequest
	decoded *conditions.Request
}

// requestsOf returns the requests of all cases.
func requestsOf(t *testing.T, all []entry) []prepared {
	t.Helper()
	var out []prepared
	for _, e := range all {
		for i := range e.Steps {
			ar := requestOf(t, &e.Steps[i].Request)
			decoded, err := conditions.NewRequest(ar)
			if err != nil {
				t.Fatalf("%s: %v", e.name(), err)
			}
			out = append(out, prepared{e.name(), ar, decoded})
		}
	}
	return out
}

// soundFor sends a phase of a plugin the requests for which the API server would not call it.
func soundFor(t *testing.T, s *admittest.Server, phase string, all []prepared) {
	t.Helper()
	for _, p := range all {
		match, err := conditions.MatchDecoded(t.Context(), s.Webhooks[phase], p.decoded, s.Authorizer())
		if err != nil {
			t.Errorf("%s of %s: %v", phase, p.name, err)
		}
		if !match.Addressed || match.Called {
			continue
		}
		s.ClearActions()
		if err := s.Silent(s.Post(t.Context(), phase, p.request)); err != nil {
			t.Errorf("%s of %s: %v", phase, p.name, err)
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
