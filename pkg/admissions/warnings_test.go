package admissions

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/pkg/admit"
)

// warningsOf returns the warnings of a plugin that starts with a configuration and flags, beside an API server that runs the
// plugins running.
func warningsOf(t *testing.T, plugin, config string, flags map[string]string, running ...string) []string {
	t.Helper()
	var got []string
	d := depsWith(t, allGates(false))
	d.Flags = map[string]string{admit.APIServerFlag: strings.Join(running, ",")}
	maps.Copy(d.Flags, flags)
	d.Warn = func(of, message string) { got = append(got, of+": "+message) }
	configs := Configs{}
	if config != "" {
		configs[plugin] = Config{Data: []byte(config)}
	}
	if _, err := Families().Services(d, []string{plugin}, configs); err != nil {
		t.Fatalf("Starting %s: %v", plugin, err)
	}
	return got
}

const redundant = ": has no effect beside the API server's own plugin of Kubernetes 1.37; if the API server does not run it, list the plugins that it runs in --api-server-plugins"

// TestEveryRedundantPluginWarns starts each plugin of kube-apiserver, without a configuration if it does not need one, beside an
// API server that runs the plugin.
func TestEveryRedundantPluginWarns(t *testing.T) {
	exceptions := map[string]string{
		"EventRateLimit":        "the limits of the two add up",
		"ImagePolicyWebhook":    "the two have their own backends",
		"InitialResources":      "it has its own source of what containers used",
		"PersistentVolumeLabel": "it labels volumes that kube-apiserver's plugin did not",
		"PodPreset":             "its presets are of another API group",
		"PodSecurityPolicy":     "its policies are of another API group",
		"ResourceQuota":         "it warns of quotas that are nearly used up",
	}
	for _, p := range upstream() {
		if !slices.Contains(Families().Names(), p.name) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			var want []string
			if exceptions[p.name] == "" {
				want = []string{p.name + redundant}
			}
			if diff := cmp.Diff(warningsOf(t, p.name, needed()[p.name], nil, p.name), want); diff != "" {
				t.Errorf("Beside an API server that runs it (- got, + want):\n%s", diff)
			}
			if got := warningsOf(t, p.name, needed()[p.name], nil, "Other"); got != nil {
				t.Errorf("Got %v beside an API server that does not run it, want no warning", got)
			}
		})
	}
}

// TestSettingsWithoutEffectWarn covers the configurations of the plugins that managed clusters run.
func TestSettingsWithoutEffectWarn(t *testing.T) {
	const (
		podSecurity = "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n"
		seconds     = "--default-not-ready-toleration-seconds"
		unused      = " has no effect without replaceInTreeDefault in the configuration, because the API server's own plugin sets the seconds first"
	)
	for name, c := range map[string]struct {
		plugin, config string
		flags          map[string]string
		want           string
	}{
		"the seconds of one taint":              {plugin: "DefaultTolerationSeconds", flags: map[string]string{seconds[2:]: "30"}, want: ": " + seconds + unused},
		"the seconds of both taints":            {"DefaultTolerationSeconds", "replaceInTreeDefault: false", map[string]string{seconds[2:]: "0", "default-unreachable-toleration-seconds": "30"}, ": " + seconds + ", --default-unreachable-toleration-seconds" + unused},
		"seconds that replace others":           {"DefaultTolerationSeconds", "replaceInTreeDefault: true", map[string]string{seconds[2:]: "30"}, ""},
		"seconds that are replaced by the same": {plugin: "DefaultTolerationSeconds", config: "replaceInTreeDefault: true", want: redundant},
		"levels":                                {plugin: "PodSecurity", config: podSecurity + "defaults: {warn: baseline}"},
		"exemptions without levels":             {plugin: "PodSecurity", config: podSecurity + "exemptions: {namespaces: [kube-system]}", want: redundant},
		"immortal namespaces":                   {plugin: "NamespaceLifecycle", config: "immortalNamespaces: [shop]"},
		"namespaces that are immortal anyway":   {plugin: "NamespaceLifecycle", config: "{immortalNamespaces: [kube-system], deletionOnly: true}", want: redundant},
		"secrets":                               {plugin: "ServiceAccount", config: "limitSecretReferences: true"},
		"another class":                         {plugin: "Priority", config: "resetOnClassChange: true"},
		"labels":                                {plugin: "PodTopologyLabels", config: "additionalLabels: [rack]"},
		"ephemeral containers":                  {plugin: "AlwaysPullImages", config: "includeEphemeralContainers: true"},
		"context of ephemeral containers":       {plugin: "SecurityContextDeny", config: "includeEphemeralContainers: true"},
		"an allow list":                         {plugin: "DenyServiceExternalIPs", config: "allow: [{cidrs: [192.0.2.0/24]}]", want: redundant},
		"a failure policy":                      {plugin: "NodeRestriction", config: "failurePolicy: Fail", want: redundant},
		"a selector":                            {plugin: "PodNodeSelector", config: "podNodeSelectorPluginConfig: {shop: a=b}"},
		"a whitelist":                           {plugin: "PodTolerationRestriction", config: "{apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, whitelist: [{key: a, operator: Exists}]}"},
		"claims":                                {plugin: "LimitRanger", config: "admitUnchangedClaims: true", want: redundant},
		"requests of zero":                      {plugin: "ExtendedResourceToleration", config: "ignoreZeroRequests: true", want: redundant},
		"redundant tolerations": {
			plugin: "PodTolerationRestriction", want: ": keepRedundantOnUpdate has no effect, because the API server's own plugin drops the tolerations first",
			config: "{apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, keepRedundantOnUpdate: true, whitelist: [{key: a, operator: Exists}]}",
		},
		"a share of a quota": {
			plugin: "ResourceQuota", want: ": warnAbove has no effect in the mode limitedResources",
			config: "{apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, mode: limitedResources, warnAbove: 70, limitedResources: [{resource: pods, matchContains: [pods]}]}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			if c.want != "" {
				want = []string{c.plugin + c.want}
			}
			if diff := cmp.Diff(warningsOf(t, c.plugin, c.config, c.flags, c.plugin), want); diff != "" {
				t.Errorf("The warnings differ (- got, + want):\n%s", diff)
			}
		})
	}
}
