package parity_test

import (
	"maps"
	"slices"
	"testing"
)

// quiet are cases whose requests the API server decides alone. That it could is
// what the failure policy of their rules rests on: a cluster needs them to go on
// while Postern is down.
func quiet() map[string][]string {
	return map[string][]string{
		"NodeRestriction": {
			"a-kubelet-does-what-it-does-all-the-time",
			"a-node-says-how-large-a-volume-is",
			"a-node-sets-its-own-labels",
			"what-other-signers-sign-is-not-looked-at",
			"who-is-no-node-is-left-alone",
		},
		"TaintNodesByCondition": {"a-node-that-has-the-taint-is-left-alone"},
	}
}

// TestQuiet fails where the API server would call for what it need not.
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
				hooks := slices.Concat(slices.Collect(maps.Values(hooksByPhase(t, s)))...)
				for j, step := range all[i].Steps {
					if isCalled(t, hooks, requestOf(t, &step.Request), accessReviews{s.Environment}) {
						t.Errorf("Step %d: the API server would call", j+1)
					}
				}
			})
		}
	}
}
