package parity_test

import (
	"slices"
	"testing"

	"github.com/postern-dev/postern/pkg/router"
)

// quiet lists cases whose requests the API server decides without a call. The failure policies of their rules
// rely on this: a cluster needs these requests while Postern is down.
func quiet() map[string][]string {
	return map[string][]string{
		"NodeRestriction": {
			"update-routine-requests-of-a-kubelet-are-admitted",
			"update-claim-status-with-capacity-is-admitted",
			"create-own-node-with-allowed-labels-is-admitted",
			"create-certificate-of-other-signers-is-admitted",
			"create-users-other-than-nodes-are-admitted",
		},
	}
}

// TestQuiet fails if the API server would call for one of the quiet cases.
func TestQuiet(t *testing.T) {
	for plugin, names := range quiet() {
		for _, name := range names {
			t.Run(plugin+"/"+name, func(t *testing.T) {
				all := entries(t)
				i := slices.IndexFunc(all, func(e entry) bool { return e.Plugin.Name == plugin && e.Case.Name() == name })
				if i < 0 {
					t.Fatal("There is no such case")
				}
				s := serve(t, all[i])
				defer s.Close()
				for j, step := range all[i].Steps {
					for _, phase := range []string{router.PhaseMutate, router.PhaseValidate} {
						match, err := s.Match(t.Context(), phase, requestOf(t, &step.Request))
						if err != nil || match.Called {
							t.Errorf("Step %d: the API server would call to %s (error %v)", j+1, phase, err)
						}
					}
				}
			})
		}
	}
}
