package podresizevalidator_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/pkg/admissions/pods/podresizevalidator"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func Test(t *testing.T) { admittest.Run(t, podresizevalidator.Plugin) }

// TestCauses checks the causes of a denial, which the YAML cases do not compare.
func TestCauses(t *testing.T) {
	want := map[string][]metav1.StatusCause{
		"update-resize-on-windows-is-denied":      {{Type: "UnsupportedPlatform"}},
		"update-denial-lists-cpu-and-memory":      {{Type: "NodeCapacity"}},
		"update-resize-on-missing-node-is-denied": nil,
	}
	cases, err := admittest.Load("testdata")
	if err != nil {
		t.Fatalf("Loading the cases: %v", err)
	}
	seen := 0
	for _, c := range cases {
		causes, ok := want[c.Name()]
		if !ok {
			continue
		}
		seen++
		s, err := c.Serve(t.Context(), podresizevalidator.Plugin)
		if err != nil {
			t.Fatalf("Serving %s: %v", c.Name(), err)
		}
		defer s.Close()
		got, err := s.Play(t.Context(), c, c.Request)
		if err != nil {
			t.Fatalf("%s: %v", c.Name(), err)
		}
		if got.Allowed || got.Status.Details == nil {
			t.Fatalf("%s: Got allowed %t and details %v, want a denial with details", c.Name(), got.Allowed, got.Status.Details)
		}
		if diff := cmp.Diff(got.Status.Details.Causes, causes); diff != "" {
			t.Errorf("%s: Causes differ (- got, + want):\n%s", c.Name(), diff)
		}
	}
	if seen != len(want) {
		t.Errorf("Got %d of the cases, want %d", seen, len(want))
	}
}
