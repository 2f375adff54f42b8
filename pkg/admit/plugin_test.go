package admit_test

import (
	"os"
	"strings"
	"testing"

	"github.com/postern-dev/postern/pkg/admit"
)

// TestKubernetes compares the version with that of the libraries.
func TestKubernetes(t *testing.T) {
	data, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, minor, _ := strings.Cut(admit.Kubernetes, ".")
	if want := "\tk8s.io/apiserver v0." + minor + "."; !strings.Contains(string(data), want) {
		t.Errorf("go.mod does not have %q, so Kubernetes %s is not what Postern was built from", want, admit.Kubernetes)
	}
}
