package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/test/controlplane"
)

// anyPod is a PodSecurityPolicy that every pod satisfies, and the permission of all service accounts to use it. The
// admin may use every policy.
const anyPod = `
apiVersion: policy.postern.dev/v1
kind: PodSecurityPolicy
metadata:
  name: any-pod
  annotations: {seccomp.security.alpha.kubernetes.io/allowedProfileNames: "*"}
spec:
  privileged: true
  allowedUnsafeSysctls: ["*"]
  allowedCapabilities: ["*"]
  volumes: ["*"]
  hostNetwork: true
  hostPID: true
  hostIPC: true
  hostPorts: [{min: 0, max: 65535}]
  seLinux: {rule: RunAsAny}
  runAsUser: {rule: RunAsAny}
  supplementalGroups: {rule: RunAsAny}
  fsGroup: {rule: RunAsAny}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: any-pod}
rules: [{apiGroups: [policy.postern.dev], resources: [podsecuritypolicies], resourceNames: [any-pod], verbs: [use]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: any-pod}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: any-pod}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:serviceaccounts"}]
`

// AllowPods creates a PodSecurityPolicy for all pods until the test ends, because the plugin PodSecurityPolicy admits no
// pod without one.
func (c *Cluster) AllowPods(tb testing.TB) {
	tb.Helper()
	c.Apply(tb, anyPod)
}

// Apply applies manifests as the admin until the test ends.
func (c *Cluster) Apply(tb testing.TB, manifests string) {
	tb.Helper()
	kubectl := func(ctx context.Context, args ...string) {
		tb.Helper()
		cmd := c.Kubectl(ctx, controlplane.Admin, args...)
		cmd.Stdin = strings.NewReader(manifests)
		if out, err := cmd.CombinedOutput(); err != nil {
			tb.Fatalf("kubectl %q: %v: %s", args, err, out)
		}
	}
	kubectl(tb.Context(), "apply", "--validate=strict", "-f", "-")
	tb.Cleanup(func() {
		kubectl(context.WithoutCancel(tb.Context()), "delete", "--ignore-not-found", "--wait=false", "-f", "-")
	})
}

// Shell runs a command line of the documentation as the admin, with kubectl and postern in its PATH, and returns what
// it prints.
func (c *Cluster) Shell(tb testing.TB, dir, command string) (string, error) {
	tb.Helper()
	kubectl := c.Kubectl(tb.Context(), controlplane.Admin)
	bin := filepath.Join(tb.TempDir(), "bin")
	if err := os.MkdirAll(bin, 0o750); err != nil {
		tb.Fatal(err)
	}
	if err := os.Symlink(c.paths.binary, filepath.Join(bin, "postern")); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), "bash", "-c", command) //nolint:gosec // it is in our documentation
	cmd.Dir = dir
	cmd.Env = append(kubectl.Env, "PATH="+bin+":"+filepath.Dir(kubectl.Path)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Module returns the folder of Postern's own module.
func (c *Cluster) Module() string { return c.paths.module }
