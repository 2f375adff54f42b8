package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestDependencies keeps test tools, and what only they need, out of the program. k8s.io/apiserver/pkg/admission itself
// imports the types of CEL. The environment, the library and the evaluation of conditions stay out.
func TestDependencies(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("Listing the dependencies: %v", err)
	}
	deps := strings.Fields(string(out))
	for _, unwanted := range []string{
		"github.com/postern-dev/postern/pkg/admit/admittest",
		"github.com/postern-dev/postern/internal/conditions",
		"k8s.io/apiserver/pkg/admission/plugin/cel",
		"k8s.io/apiserver/pkg/cel/environment",
		"k8s.io/apiserver/pkg/cel/library",
		"testing",
	} {
		if slices.Contains(deps, unwanted) {
			t.Errorf("The program depends on %s", unwanted)
		}
	}
	if !slices.Contains(deps, "github.com/postern-dev/postern/pkg/admit") {
		t.Errorf("Got %d dependencies without the chain", len(deps))
	}
}
