package main

import (
	"regexp"
	"slices"
	"testing"
)

func TestEveryPluginOfAGroupHasOneGroup(t *testing.T) {
	seen := map[string]string{}
	for _, g := range groups() {
		if len(g.plugins) == 0 || (g.configuration != "" && len(g.plugins) > 1) {
			t.Errorf("The group %s has the plugins %q and the configuration %q", g.name, g.plugins, g.configuration)
		}
		for _, plugin := range g.plugins {
			if other, ok := seen[plugin]; ok {
				t.Errorf("%s is in the groups %s and %s", plugin, other, g.name)
			}
			seen[plugin] = g.name
		}
	}
}

func TestExistingDropsGroupsWithoutTheirPlugins(t *testing.T) {
	all := []group{{name: "a", plugins: []string{"A"}}, {name: "b", plugins: []string{"A", "B"}}, {name: "c", plugins: []string{"C"}}}
	chosen, lacking := existing(all, []string{"A", "C"})
	if got, want := groupNames(chosen), []string{"a", "c"}; !slices.Equal(got, want) {
		t.Errorf("Chosen are %q, want %q", got, want)
	}
	if want := []string{"b"}; !slices.Equal(lacking, want) {
		t.Errorf("Lacking are %q, want %q", lacking, want)
	}
}

// TestGinkgoGetsTheSameTests compares the expressions for ginkgo with the choice that this program makes.
func TestGinkgoGetsTheSameTests(t *testing.T) {
	all := groups()
	focus, skip := regexp.MustCompile(focusOf(all)), regexp.MustCompile(skipOf(all))
	for name, want := range map[string]string{
		"[sig-node] RuntimeClass should reject a Pod requesting a non-existent RuntimeClass [Conformance]":               "RuntimeClass",
		"[sig-node] RuntimeClass should run a Pod requesting a RuntimeClass with a configured handler":                   "",
		"[sig-node] RuntimeClass should reject a Pod requesting a RuntimeClass with an unconfigured handler [Feature:X]": "",
		"[sig-storage] PV Protection Verify \"immediate\" deletion of a PV that is not bound to a PVC":                   "Protection",
		"[sig-storage] PVC Protection Verify that PVC in active use by a pod is not removed immediately":                 "",
		"[sig-auth] [Feature:NodeAuthorizer] A node shouldn't be able to create another node":                            "Nodes",
		"[sig-auth] NodeAuthenticator The kubelet can delegate ServiceAccount tokens to the API server":                  "",
		"[sig-api-machinery] ResourceQuota [Feature:PodPriority] should verify ResourceQuota's priority class scope":     "ResourceQuota",
		"[sig-node] [DRA] control plane supports count/resourceclaims.resource.k8s.io ResourceQuota":                     "",
		"[sig-apps] ReplicaSet should surface a failure condition on a common issue like exceeded quota":                 "ResourceQuota",
		"[sig-cli] Kubectl client Kubectl create quota should create a quota with scopes":                                "",
		"[sig-scheduling] SchedulerPreemption validates basic preemption works [Conformance] [Serial]":                   "",
	} {
		// Ginkgo matches the name of the suite and the name of the test.
		full := "Kubernetes e2e suite " + name
		got := ""
		if g := groupOf(all, name); g != nil && g.exclusionOf(name) == nil {
			got = g.name
		}
		if got != want {
			t.Errorf("%q is in the group %q, want %q", name, got, want)
		}
		if runs := focus.MatchString(full) && !skip.MatchString(full); runs != (want != "") {
			t.Errorf("Ginkgo runs %q: %v, want %v", name, runs, want != "")
		}
	}
}

func TestNoExclusionMeansNoSkip(t *testing.T) {
	if got := skipOf([]group{{name: "a", focus: regexp.MustCompile("a")}}); got != "" {
		t.Errorf("The expression is %q. Ginkgo would skip every test that matches it", got)
	}
}

func TestConfigurationOfTheGroups(t *testing.T) {
	all := []group{{plugins: []string{"A"}}, {plugins: []string{"B"}, configuration: "{mode: b}"}}
	const want = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- {name: B, configuration: {mode: b}}\n"
	if got := configurationOf(all); got != want {
		t.Errorf("Got:\n%s\nwant:\n%s", got, want)
	}
	if got := configurationOf(all[:1]); got != "" {
		t.Errorf("Got %q for a group without configuration, want nothing", got)
	}
}
