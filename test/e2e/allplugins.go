package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var pluginList = regexp.MustCompile(`Plugins: ([A-Za-z, ]+)\.`)

// FrozenNamespace is the namespace in which a Postern with AllPlugins denies all requests.
const FrozenNamespace = "frozen"

// allConfigurations is the configuration of the plugins that require a configuration. It has a placeholder for the
// kubeconfig of an ImageBackend.
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
- name: InitialResources
  configuration: {vpa: {}}
- name: ImagePolicyWebhook
  configuration: {imagePolicy: {kubeConfigFile: %q}}
`

// pluginsOf returns the names of all plugins in the output of --help.
func pluginsOf(ctx context.Context, binary string) ([]string, error) {
	help, err := exec.CommandContext(ctx, binary, "--help").Output() //nolint:gosec // built here
	if err != nil {
		return nil, fmt.Errorf("asking postern for its plugins: %w", err)
	}
	found := pluginList.FindSubmatch(help)
	if found == nil {
		return nil, fmt.Errorf("there is no list of plugins in %s", help)
	}
	return strings.Split(string(found[1]), ", "), nil
}

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
	if err := os.WriteFile(file, fmt.Appendf(nil, allConfigurations+strings.Join(more, ""), StartImageBackend(tb).Kubeconfig), 0o600); err != nil {
		tb.Fatal(err)
	}
	return Options{Plugins: s.Plugins(tb), Flags: []string{"--admission-control-config-file=" + file, "--exempt-namespaces=kube-system"}}
}
