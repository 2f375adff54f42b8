package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// group is a part of Kubernetes' end-to-end tests that is about certain admission plugins.
type group struct {
	name string
	// plugins are the plugins that the columns switch off and on.
	plugins []string
	// configuration is Postern's configuration of the plugin, in YAML on one line. It is empty if the plugin's defaults
	// do what kube-apiserver's plugin does.
	configuration string
	// focus matches the full names of the group's tests.
	focus    *regexp.Regexp
	excluded []exclusion
}

// exclusion names tests of a group that do not run, and the reason.
type exclusion struct {
	// text is a part of the full names of the tests.
	text   string
	reason string
}

// Reasons to exclude a test. No control plane of this program has a kubelet or a scheduler.
const (
	needsRunning   = "waits for a pod that runs"
	needsScheduler = "waits until the scheduler binds a pod to a node"
	needsKubelet   = "calls a kubelet"
	needsEvent     = "waits five minutes for an event of a kubelet, and passes without it"
	needsClass     = "needs a default StorageClass with a provisioner, and pods that run"
	needsGate      = "needs a feature gate that is off by default"
)

// groups returns all groups. The tests of a group that are not excluded pass with kube-apiserver's own plugins.
func groups() []group {
	return []group{
		{
			name: "ResourceQuota", plugins: []string{"ResourceQuota"},
			configuration: "{apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, mode: charge}",
			focus:         regexp.MustCompile(`\[sig-api-machinery\] ResourceQuota |exceeded quota|resourceclaims\.resource\.k8s\.io ResourceQuota`),
			excluded:      []exclusion{{"[DRA] control plane", needsRunning}},
		},
		{
			name: "LimitRange", plugins: []string{"LimitRanger"},
			focus: regexp.MustCompile(`\[sig-scheduling\] LimitRange `),
		},
		{
			name: "RuntimeClass", plugins: []string{"RuntimeClass"},
			focus: regexp.MustCompile(`\[sig-node\] RuntimeClass `),
			excluded: []exclusion{
				{"an unconfigured handler", needsEvent},
				{"a configured handler", needsRunning},
				{"with scheduling with taints", needsRunning},
				{"with scheduling without taints", needsRunning},
				{"initialize its Overhead", needsScheduler},
				{"without PodOverhead", needsScheduler},
			},
		},
		{
			name: "PriorityClass", plugins: []string{"Priority"},
			focus: regexp.MustCompile(`PriorityClass endpoints`),
		},
		{
			name: "ServiceAccounts", plugins: []string{"ServiceAccount"},
			focus: regexp.MustCompile(`\[sig-auth\] ServiceAccounts `),
			excluded: []exclusion{
				{"should mount an API token into pods", needsRunning},
				{"should mount projected service account token", needsRunning},
				{"when RunAsUser or FsGroup is present", needsRunning},
				{"when DefaultUser or User is present", needsGate},
				{"InClusterConfig with token rotation", needsRunning},
				{"OIDC discovery of service account issuer", needsRunning},
			},
		},
		{
			name: "DefaultIngressClass", plugins: []string{"DefaultIngressClass"},
			focus: regexp.MustCompile(`\[sig-network\] DefaultIngressClass `),
		},
		{
			name: "Protection", plugins: []string{"StorageObjectInUseProtection"},
			focus:    regexp.MustCompile(`\[sig-storage\] PVC? Protection `),
			excluded: []exclusion{{"PVC Protection", needsClass}},
		},
		{
			name: "Certificates",
			plugins: []string{
				"CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction", "ClusterTrustBundleAttest",
			},
			focus: regexp.MustCompile(`\[sig-auth\] (Certificates API |PodCertificateRequest API )|ClusterTrustBundles \[`),
		},
		{
			name: "Nodes", plugins: []string{"NodeRestriction"},
			focus:    regexp.MustCompile(`\[sig-auth\] (\[Feature:NodeAuthorizer\]|NodeAuthenticator )`),
			excluded: []exclusion{{"NodeAuthenticator", needsKubelet}},
		},
	}
}

func groupNames(groups []group) []string {
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	return names
}

// exclusionOf returns the exclusion of a test of the group, or nil.
func (g group) exclusionOf(test string) *exclusion {
	i := slices.IndexFunc(g.excluded, func(e exclusion) bool { return strings.Contains(test, e.text) })
	if i < 0 {
		return nil
	}
	return &g.excluded[i]
}

// groupOf returns the group of a test, or nil.
func groupOf(groups []group, test string) *group {
	i := slices.IndexFunc(groups, func(g group) bool { return g.focus.MatchString(test) })
	if i < 0 {
		return nil
	}
	return &groups[i]
}

// pluginsOf returns the plugins of the groups, each once.
func pluginsOf(groups []group) []string {
	var plugins []string
	for _, g := range groups {
		plugins = append(plugins, g.plugins...)
	}
	slices.Sort(plugins)
	return slices.Compact(plugins)
}

// configurationOf returns the AdmissionConfiguration for the groups. It is empty if no group has a configuration.
func configurationOf(groups []group) string {
	var b strings.Builder
	for _, g := range groups {
		if g.configuration != "" {
			fmt.Fprintf(&b, "- {name: %s, configuration: %s}\n", g.plugins[0], g.configuration)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n" + b.String()
}

// existing returns the groups whose plugins Postern has, and the names of the other groups.
func existing(groups []group, plugins []string) (chosen []group, lacking []string) {
	for _, g := range groups {
		if slices.ContainsFunc(g.plugins, func(name string) bool { return !slices.Contains(plugins, name) }) {
			lacking = append(lacking, g.name)
		} else {
			chosen = append(chosen, g)
		}
	}
	return chosen, lacking
}
