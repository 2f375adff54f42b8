package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FrozenNamespace is the namespace in which a Postern with AllPlugins denies all requests.
const FrozenNamespace = "frozen"

// allConfigurations is the configuration of the plugins that require a configuration. It has a placeholder for the
// kubeconfig of a hub without FleetQuotas, and one for that of an ImageBackend.
const allConfigurations = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: AlwaysDeny
  configuration: {namespaces: [` + FrozenNamespace + `]}
- name: DeletionGate
  configuration: {gates: [{name: gate, selector: {matchLabels: {e2e.postern.dev/gate: closed}}, podCondition: e2e.postern.dev/open}]}
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits:
    - {type: Server, qps: 5000, burst: 5000}
- name: FleetQuota
  configuration: {hub: {kubeConfigFile: %q}, cluster: {name: only}, syncInterval: 1h}
- name: InitialResources
  configuration: {vpa: {}}
- name: ImagePolicyWebhook
  configuration: {imagePolicy: {kubeConfigFile: %q}}
`

// noHub is the kubeconfig of a hub that does not answer.
const noHub = `{apiVersion: v1, kind: Config, current-context: hub, clusters: [{name: hub, cluster: {server: "https://127.0.0.1:1"}}],
contexts: [{name: hub, context: {cluster: hub}}]}
`

// Plugins returns the names of all plugins. The caller may modify the list.
func (s *Suite) Plugins(tb testing.TB) []string {
	tb.Helper()
	s.once.Do(func() { s.paths, s.err = build(tb.Context()) })
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return slices.Clone(s.paths.plugins)
}

// AllPlugins returns the options of a Postern that runs every plugin, and exempts the same namespace as the manifests.
// more are further entries of the configuration file.
func (s *Suite) AllPlugins(tb testing.TB, more ...string) Options {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "admission.yaml")
	hub := filepath.Join(tb.TempDir(), "hub.kubeconfig")
	if err := os.WriteFile(hub, []byte(noHub), 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, allConfigurations+strings.Join(more, ""), hub, StartImageBackend(tb).Kubeconfig), 0o600); err != nil {
		tb.Fatal(err)
	}
	return Options{Plugins: s.Plugins(tb), Flags: []string{"--admission-control-config-file=" + file, "--exempt-namespaces=kube-system"}}
}
