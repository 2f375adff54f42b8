package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var pluginList = regexp.MustCompile(`Plugins: ([A-Za-z, ]+)\.`)

// FrozenNamespace is the namespace in which a Postern with AllPlugins denies all requests.
const FrozenNamespace = "frozen"

// allConfigurations is the configuration of the plugins that require a configuration.
const allConfigurations = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: AlwaysDeny
  configuration: {namespaces: [` + FrozenNamespace + `]}
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits:
    - {type: Server, qps: 5000, burst: 5000}
- name: InitialResources
  configuration: {vpa: {}}
`

// Plugins returns the names of all plugins in the output of --help.
func (s *Suite) Plugins(tb testing.TB) []string {
	tb.Helper()
	help := s.Output(tb, "--help")
	found := pluginList.FindStringSubmatch(help)
	if found == nil {
		tb.Fatalf("There is no list of plugins in %s", help)
	}
	return strings.Split(found[1], ", ")
}

// AllPlugins returns the options of a Postern that runs every plugin, and exempts the same namespace as the manifests.
func (s *Suite) AllPlugins(tb testing.TB) Options {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "admission.yaml")
	if err := os.WriteFile(file, []byte(allConfigurations), 0o600); err != nil {
		tb.Fatal(err)
	}
	return Options{Plugins: s.Plugins(tb), Flags: []string{"--admission-control-config-file=" + file, "--exempt-namespaces=kube-system"}}
}
