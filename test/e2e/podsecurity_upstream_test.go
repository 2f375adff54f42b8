package e2e_test

import (
	"testing"

	podsecuritytest "k8s.io/pod-security-admission/test"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/test/controlplane"
)

// TestPodSecurityOfTheLibrary runs the integration tests of the library, which kube-apiserver's own plugin has to pass:
// pods and Deployments for every check, level and version in which something changes.
func TestPodSecurityOfTheLibrary(t *testing.T) {
	ring.Second(t, "thousands of pods")
	t.Parallel()
	c := withoutPodSecurity(t)
	startPodSecurity(t, c, podSecurity(t, ""))
	podsecuritytest.Run(t, podsecuritytest.Options{ClientConfig: c.Config(t, controlplane.Admin)})
}
