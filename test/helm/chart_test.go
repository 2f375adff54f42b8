package helm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/pkg/admissions"
)

// variants are values under which every line of the templates is rendered.
func variants(t *testing.T) map[string]values {
	t.Helper()
	every := configured(admissions.Families().Names()...)
	every["configuration"].(values)["AlwaysDeny"] = values{"namespaces": []any{"frozen"}}
	every["configuration"].(values)["PodNodeSelector"] = values{"podNodeSelectorPluginConfig": values{"clusterDefaultNodeSelector": "a=b"}}
	out := map[string]values{
		"default": {},
		"all": {
			"plugins": every["plugins"], "configuration": every["configuration"], "allowNoPlugins": true,
			"disabledPlugins": []any{"Priority"}, "apiServerPlugins": []any{"none"}, "featureGates": values{"PodLevelResources": false},
			"failurePolicy": "Ignore", "webhookTimeoutSeconds": 5, "image": values{"digest": "sha256:" + strings.Repeat("0", 64), "pullSecrets": []any{"x"}},
			"nodeSelector": values{"a": "b"}, "tolerations": []any{values{"operator": "Exists"}}, "affinity": values{"nodeAffinity": values{}},
			"podAnnotations": values{"a": "b"}, "podLabels": values{"a": "b"}, "serviceAccount": values{"annotations": values{"a": "b"}},
			"certificates": values{"certManager": values{"enabled": true}}, "networkPolicy": values{"enabled": true, "from": []any{values{"ipBlock": values{"cidr": "10.0.0.0/8"}}}},
			"metrics":       values{"authorization": true, "serviceMonitor": values{"enabled": true, "labels": values{"a": "b"}}},
			"resourceQuota": values{"enabled": true}, "namespace": values{"create": true}, "extraArgs": []any{"--v=2"}, "hostNetwork": true,
			"extraVolumes": []any{values{"name": "hub", "secret": values{"secretName": "hub"}}}, "extraVolumeMounts": []any{values{"name": "hub", "mountPath": "/etc/hub", "readOnly": true}},
			"extraEnv": []any{values{"name": "HTTPS_PROXY", "value": "proxy.example.com:3128"}},
		},
		"files alone": {
			"extraVolumes": []any{values{"name": "hub", "secret": values{"secretName": "hub"}}}, "extraVolumeMounts": []any{values{"name": "hub", "mountPath": "/etc/hub"}},
		},
		"certificate": {"certificates": values{"secretName": "x"}},
	}
	presets, err := filepath.Glob(filepath.Join(chartDir(), "values-*.yaml"))
	if err != nil || len(presets) < 4 {
		t.Fatalf("Got the presets %v, %v", presets, err)
	}
	for _, path := range presets {
		v, err := chartutil.ReadValuesFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(path)] = v
	}
	return out
}

// TestObjects decodes all rendered objects strictly, and has the arguments of the Deployment checked.
func TestObjects(t *testing.T) {
	types := map[string]func() any{
		"Namespace": func() any { return &corev1.Namespace{} }, "ServiceAccount": func() any { return &corev1.ServiceAccount{} },
		"Service": func() any { return &corev1.Service{} }, "ConfigMap": func() any { return &corev1.ConfigMap{} },
		"ResourceQuota": func() any { return &corev1.ResourceQuota{} }, "Deployment": func() any { return &appsv1.Deployment{} },
		"PodDisruptionBudget": func() any { return &policyv1.PodDisruptionBudget{} }, "NetworkPolicy": func() any { return &networkingv1.NetworkPolicy{} },
		"Certificate": func() any { return &certmanagerv1.Certificate{} }, "Issuer": func() any { return &certmanagerv1.Issuer{} },
		"ServiceMonitor": func() any { return &monitoringv1.ServiceMonitor{} }, "Job": func() any { return &batchv1.Job{} },
		"ClusterRole": func() any { return &rbacv1.ClusterRole{} }, "ClusterRoleBinding": func() any { return &rbacv1.ClusterRoleBinding{} },
		"Role": func() any { return &rbacv1.Role{} }, "RoleBinding": func() any { return &rbacv1.RoleBinding{} },
		"PriorityLevelConfiguration": func() any { return &flowcontrolv1.PriorityLevelConfiguration{} },
		"FlowSchema":                 func() any { return &flowcontrolv1.FlowSchema{} },
		"CustomResourceDefinition":   func() any { return &apiextensionsv1.CustomResourceDefinition{} },
	}
	for name, v := range variants(t) {
		t.Run(name, func(t *testing.T) {
			seen := map[string]bool{}
			texts := mustRender(t, "elsewhere", v)
			for file, text := range texts {
				if file == "NOTES.txt" {
					continue
				}
				for _, doc := range documents(t, text) {
					var object metav1.PartialObjectMetadata
					if err := yaml.Unmarshal(doc, &object); err != nil || object.Kind == "" || object.Name == "" {
						t.Fatalf("%s: %v: %s", file, err, doc)
					}
					seen[object.Kind] = true
					if strings.HasSuffix(object.Kind, "WebhookConfiguration") {
						t.Errorf("The chart has a %s, want none: Postern registers what it serves", object.Kind)
					}
					if decode, ok := types[object.Kind]; !ok {
						t.Errorf("%s: there is no type for the kind %s", file, object.Kind)
					} else if err := yaml.UnmarshalStrict(doc, decode()); err != nil {
						t.Errorf("%s: %v", file, err)
					}
				}
			}
			printed(t, arguments(t, texts)...)
			if name != "all" {
				return
			}
			for kind := range types {
				if !seen[kind] {
					t.Errorf("There is no %s", kind)
				}
			}
		})
	}
}

// TestTwoReleases checks that releases in two namespaces have no object in common, except the definitions.
func TestTwoReleases(t *testing.T) {
	names := map[string]string{}
	for _, ns := range []string{namespace, "elsewhere"} {
		for _, text := range mustRender(t, ns, variants(t)["all"]) {
			for _, doc := range documents(t, text) {
				var object metav1.PartialObjectMetadata
				if err := yaml.Unmarshal(doc, &object); err != nil || object.Namespace != "" || object.Kind == "CustomResourceDefinition" {
					continue
				}
				key := object.Kind + " " + object.Name
				if other, ok := names[key]; ok && other != ns {
					t.Errorf("Both releases have the %s", key)
				}
				names[key] = ns
			}
		}
	}
	if len(names) < 10 {
		t.Errorf("Got only the objects %v", names)
	}
}

// TestFlowControlOfOlderServers covers Kubernetes 1.28, and API servers without API priority and fairness.
func TestFlowControlOfOlderServers(t *testing.T) {
	for name, tc := range map[string]struct {
		served  chartutil.VersionSet
		enabled bool
		want    string // The version of each object.
	}{
		"1.29 to 1.31":                      {chartutil.VersionSet{"flowcontrol.apiserver.k8s.io/v1", "flowcontrol.apiserver.k8s.io/v1beta3"}, true, "flowcontrol.apiserver.k8s.io/v1"},
		"1.28":                              {chartutil.VersionSet{"flowcontrol.apiserver.k8s.io/v1beta2", "flowcontrol.apiserver.k8s.io/v1beta3"}, true, "flowcontrol.apiserver.k8s.io/v1beta3"},
		"without API priority and fairness": {chartutil.VersionSet{"v1", "apps/v1"}, true, ""},
		"helm template":                     {chartutil.DefaultVersionSet, true, "flowcontrol.apiserver.k8s.io/v1"},
		"disabled":                          {chartutil.DefaultVersionSet, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			capabilities := chartutil.DefaultCapabilities.Copy()
			capabilities.APIVersions = tc.served
			texts, err := renderOn(load(t), namespace, values{"flowControl": values{"enabled": tc.enabled}}, capabilities, engine.Render)
			if err != nil {
				t.Fatal(err)
			}
			docs := documents(t, texts["flowcontrol.yaml"])
			for _, doc := range docs {
				var object metav1.TypeMeta
				if err := yaml.Unmarshal(doc, &object); err != nil || object.APIVersion != tc.want {
					t.Errorf("Got the version %q, %v, want %q", object.APIVersion, err, tc.want)
				}
			}
			if isRendered := len(docs) == 4; isRendered != (tc.want != "") || !isRendered && len(docs) > 0 {
				t.Errorf("Got %d objects", len(docs))
			}
		})
	}
}

// TestConfiguration has Postern check the configuration file of the chart.
func TestConfiguration(t *testing.T) {
	configuration := func(selector string) values {
		return values{"plugins": []any{"PodNodeSelector"}, "configuration": values{"PodNodeSelector": values{"podNodeSelectorPluginConfig": values{"clusterDefaultNodeSelector": selector}}}}
	}
	texts := mustRender(t, namespace, configuration("pool=general"))
	checkConfiguration(t, texts)
	sum := func(texts map[string]string) string {
		var d appsv1.Deployment
		if err := yaml.UnmarshalStrict([]byte(texts["deployment.yaml"]), &d); err != nil {
			t.Fatal(err)
		}
		return d.Spec.Template.Annotations["checksum/configuration"]
	}
	one, same, other := sum(texts), sum(mustRender(t, namespace, configuration("pool=general"))), sum(mustRender(t, namespace, configuration("pool=other")))
	if one == "" || one != same || one == other {
		t.Errorf("Got the checksums %q, %q, and %q for another configuration", one, same, other)
	}
}

// ofPlugins matches the flags of the Deployment that enable plugins or configure one. The command check-config has no others.
var ofPlugins = regexp.MustCompile(`^--(enable-admission-plugins|default-[a-z-]+-toleration-seconds)=`)

// checkConfiguration has Postern check the configuration file of rendered templates, with the flags for plugins of the
// Deployment.
func checkConfiguration(t *testing.T, texts map[string]string) {
	t.Helper()
	var m corev1.ConfigMap
	if err := yaml.UnmarshalStrict([]byte(texts["configmap.yaml"]), &m); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(path, []byte(m.Data["admission.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	// The chart and the program agree about what is enabled.
	flags := slices.DeleteFunc(arguments(t, texts), func(arg string) bool { return !ofPlugins.MatchString(arg) })
	if code, out, errs := postern(t, append([]string{"check-config", path}, flags...)...); code != 0 || errs != "" {
		t.Errorf("postern check-config: exit code %d: %s%s\n%s", code, out, errs, m.Data["admission.yaml"])
	}
}

// TestMistakes checks that the schema names the value that is wrong.
func TestMistakes(t *testing.T) {
	for want, v := range map[string]values{
		"replica":                {"replica": 3},
		"plugins/0":              {"plugins": []any{"AlwaysPullImages,PodSecurity"}},
		"configuration":          {"configuration": values{"PodNodeSelector": "a=b"}},
		"allowNoPlugins":         {"allowNoPlugins": "yes"},
		"extraVolumes":           {"extraVolumes": []any{values{"secret": values{}}}},
		"mountPath":              {"extraVolumeMounts": []any{values{"name": "a"}}},
		"extraEnv":               {"extraEnv": []any{values{"value": "a"}}},
		"'nam'":                  {"program": values{"configurations": []any{"a"}, "plugins": []any{values{"nam": "A"}}}},
		"program/configurations": {"program": values{"configurations": []any{}, "plugins": []any{}}},
		"resourceNames":          {"program": values{"configurations": []any{"a"}, "plugins": []any{values{"name": "A", "rules": []any{values{"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": []any{"get"}, "resourceNames": []any{"a"}}}}}}},
		"failurePolicy":          {"failurePolicy": "fail"},
		"webhookTimeoutSeconds":  {"webhookTimeoutSeconds": 31},
		"securePort":             {"securePort": "8443"},
		"repo":                   {"image": values{"repo": "x"}},
		"extraArgs":              {"extraArgs": []any{"v=2"}},
		"exemptNamespaces":       {"exemptNamespaces": []any{"Kube-System"}},
		"certmanager":            {"certificates": values{"certmanager": values{}}},
		"uninstallJob":           {"uninstallJob": false},
		"featureGates":           {"featureGates": values{"A": "true"}},
		"postern.dev/canary":     {"podLabels": values{"postern.dev/canary": "false"}},
	} {
		if _, err := render(load(t), namespace, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Got the error %v for %v, want one that names %s", err, v, want)
		}
	}
}

// TestMistakesInSeveralValues covers what the templates refuse, because it depends on more than one value, and the allowed
// neighbours.
func TestMistakesInSeveralValues(t *testing.T) {
	budget := func(replicas int, minAvailable any) values {
		return values{"replicas": replicas, "podDisruptionBudget": values{"minAvailable": minAvailable}}
	}
	disabled := budget(2, 2)
	disabled["podDisruptionBudget"].(values)["enabled"] = false
	args := func(args ...any) values { return values{"extraArgs": args} }
	const all = "podDisruptionBudget.minAvailable: %s needs all %d replicas"
	for name, tc := range map[string]struct {
		v    values
		want string // What the message contains. The values are allowed if empty.
	}{
		"one port":                    {values{"securePort": 8080}, "securePort and healthPort: both are 8080"},
		"one port, set twice":         {values{"securePort": 9443.0, "healthPort": int64(9443)}, "securePort and healthPort: both are 9443"},
		"two ports":                   {values{"securePort": 8080, "healthPort": 8443}, ""},
		"two of two":                  {budget(2, 2), fmt.Sprintf(all, "2", 2)},
		"three of two":                {budget(2, 3.0), fmt.Sprintf(all, "3", 2)},
		"a text, two of two":          {budget(2, "2"), fmt.Sprintf(all, "2", 2)},
		"51% of two":                  {budget(2, "51%"), fmt.Sprintf(all, "51%", 2)},
		"67% of three":                {budget(3, "67%"), fmt.Sprintf(all, "67%", 3)},
		"100% of five":                {budget(5, "100%"), fmt.Sprintf(all, "100%", 5)},
		"one of two":                  {budget(2, 1), ""},
		"a text, one of two":          {budget(2, "1"), ""},
		"50% of two":                  {budget(2, "50%"), ""},
		"two of three":                {budget(3, 2), ""},
		"66% of three":                {budget(3, "66%"), ""},
		"one of one has no budget":    {budget(1, 1), ""},
		"100% of one has no budget":   {budget(1, "100%"), ""},
		"a disabled budget":           {disabled, ""},
		"a negative number":           {budget(2, -1), "/podDisruptionBudget/minAvailable"},
		"no number":                   {budget(2, "half"), "/podDisruptionBudget/minAvailable"},
		"an octal number":             {budget(2, "010%"), "/podDisruptionBudget/minAvailable"},
		"an unknown plugin":           {values{"plugins": []any{"AlwaysPullImage"}}, "plugins: there is no plugin AlwaysPullImage; there are: AlwaysAdmit, "},
		"an unknown plugin, disabled": {values{"disabledPlugins": []any{"Prio"}}, "disabledPlugins: there is no plugin Prio; there are: "},
		"unknown in configuration":    {values{"configuration": values{"PodNodeselector": values{}}}, "configuration: there is no plugin PodNodeselector; there are: "},
		"no configuration":            {values{"plugins": []any{"DenyEscalatingExec"}, "configuration": values{"DenyEscalatingExec": values{}}}, "configuration.DenyEscalatingExec: the plugin has no configuration"},
		"a configuration in vain":     {values{"configuration": values{"PodSecurity": values{"a": "b"}}}, "configuration.PodSecurity: the plugin is not enabled, so it has no effect: add PodSecurity to plugins"},
		"of a plugin that is on":      {values{"apiServerPlugins": []any{"none"}, "configuration": values{"PodSecurity": values{"a": "b"}}}, ""},
		"a configuration is missing":  {values{"plugins": []any{"AlwaysPullImages", "ImagePolicyWebhook"}}, "plugins: ImagePolicyWebhook needs a configuration: set configuration.ImagePolicyWebhook"},
		"none is needed if disabled":  {values{"disabledPlugins": []any{"ImagePolicyWebhook"}}, ""},
		"configuration is null":       {values{"configuration": nil}, ""},
		"program is null":             {values{"program": nil}, ""},
		"no plugin":                   {values{"plugins": []any{}}, "plugins: no plugin is enabled: add one, or set allowNoPlugins"},
		"plugins is null":             {values{"plugins": nil}, "plugins: no plugin is enabled"},
		"no plugin, as it is said":    {values{"plugins": []any{}, "allowNoPlugins": true}, ""},
		"those that are on":           {values{"plugins": []any{}, "apiServerPlugins": []any{"none"}}, ""},
		"a volume of the chart":       {values{"extraVolumes": []any{values{"name": "configuration", "emptyDir": values{}}}}, "extraVolumes: the name configuration is taken by the chart"},
		"a path of the chart":         {values{"extraVolumeMounts": []any{values{"name": "a", "mountPath": "/etc/postern/"}}}, "extraVolumeMounts: the path /etc/postern/ is taken by the chart"},
		"a path below it":             {values{"extraVolumeMounts": []any{values{"name": "a", "mountPath": "/etc/postern-tls/hub"}}}, "extraVolumeMounts: the path /etc/postern-tls/hub is taken by the chart"},
		"a parent of both":            {values{"extraVolumeMounts": []any{values{"name": "a", "mountPath": "/etc"}}}, "extraVolumeMounts: the path /etc is taken by the chart"},
		"a path beside it":            {values{"extraVolumeMounts": []any{values{"name": "a", "mountPath": "/etc/postern-hub"}}}, ""},
		"a variable of the chart":     {values{"extraEnv": []any{values{"name": "POD_NAME", "value": "a"}}}, "extraEnv: the variable POD_NAME is set by the chart"},
		"two sources of certificates": {values{"certificates": values{"secretName": "x", "certManager": values{"enabled": true}}}, "certificates: set either secretName or certManager.enabled, not both"},
		"a flag of a value":           {args("--secure-port=9443"), "extraArgs: --secure-port is set by the value securePort"},
		"a flag without a value":      {args("--v=2", "--metrics-authorization"), "extraArgs: --metrics-authorization is set by the value metrics.authorization"},
		"a flag in two items":         {args("--secure-port", "--9443"), "extraArgs: --secure-port is set by the value securePort"},
		"the schema has no two items": {args("--secure-port", "9443"), "/extraArgs/1"},
		"the namespace":               {args("--webhook-namespace=x"), "extraArgs: --webhook-namespace is set by the namespace of the release"},
		"a CA for each replica":       {args("--cert-dir=/tmp"), "extraArgs: --cert-dir cannot be used with the chart: all replicas share one CA"},
		"another Service":             {args("--webhook-service=a"), "extraArgs: --webhook-service cannot be used with the chart: the webhooks call the Service"},
		"an address from outside":     {args("--webhook-url=https://postern.example.com:443"), ""},
		"another cluster":             {args("--kubeconfig=a"), "extraArgs: --kubeconfig cannot be used with the chart: Postern uses the service account of the release"},
		"an unknown feature gate":     {values{"featureGates": values{"Nonsense": true}}, "featureGates: there is no feature gate Nonsense; there are: AllAlpha, "},
		"known feature gates":         {values{"featureGates": values{"PodLevelResources": false, "AllBeta": true}}, ""},
		"feature gates are null":      {values{"featureGates": nil}, ""},
		"a program without its gates": {values{"featureGates": values{"Mine": true}, "program": values{"configurations": []any{"own"}, "services": true, "plugins": []any{}}, "plugins": []any{}}, ""},
		"a prefix of a flag":          {args("--v=2", "--secure=1", "--webhook-timeout-x=--secure-port"), ""},
		"the second of two mistakes":  {values{"securePort": 8080, "extraArgs": []any{"--feature-gates=A=true"}}, "\nextraArgs: --feature-gates is set by the value featureGates"},
	} {
		_, err := render(load(t), namespace, tc.v)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got the error %v, want %q", name, err, tc.want)
		}
	}
}

// TestExtraArgumentsOfValues checks that extraArgs may have a flag of the process just if the Deployment does not set it from
// a value. A new argument of the Deployment needs an entry in postern.validate.
func TestExtraArgumentsOfValues(t *testing.T) {
	template, err := os.ReadFile(filepath.Join(chartDir(), "templates", "deployment.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ *- (--[a-z-]+)`).FindAllSubmatch(template, -1) {
		written[string(m[1])] = true
	}
	rendered := map[string]bool{}
	for _, v := range variants(t) {
		delete(v, "extraArgs")
		for _, arg := range arguments(t, mustRender(t, "elsewhere", v)) {
			flag, _, _ := strings.Cut(arg, "=")
			rendered[flag] = true
		}
	}
	if diff := cmp.Diff(written, rendered); diff != "" {
		t.Errorf("The variants render other flags (- template, + variants):\n%s", diff)
	}
	_, help, _ := postern(t, "--help")
	flags := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ {2,6}(?:-\w, )?(--[a-z-]+)`).FindAllStringSubmatch(help, -1) {
		flags[m[1]] = true
	}
	for flag := range rendered {
		if !flags[flag] {
			t.Errorf("postern --help lacks %s", flag)
		}
	}
	for flag := range flags {
		_, err := render(load(t), namespace, values{"extraArgs": []any{flag + "=x"}})
		set := err != nil && strings.Contains(err.Error(), "extraArgs: "+flag+" is set by ")
		unusable := err != nil && strings.Contains(err.Error(), "extraArgs: "+flag+" cannot be used with the chart: ")
		if set != (rendered[flag] || flag == "--admission-control") || unusable != slices.Contains([]string{"--cert-dir", "--webhook-service", "--kubeconfig"}, flag) || !set && !unusable && err != nil {
			t.Errorf("%s in extraArgs: got the error %v, the Deployment sets it: %t", flag, err, rendered[flag])
		}
	}
}

// TestKubernetesVersions covers what Helm compares with the chart: the version of the cluster, or, without a cluster, the
// version that Helm was built with.
func TestKubernetesVersions(t *testing.T) {
	for version, want := range map[string]bool{
		chartutil.DefaultCapabilities.KubeVersion.Version: true, // This Helm's own: it has no version information.
		"v1.20.0": true, "v1.19.16": false, "v1.20.1": false, "v1.20.0-eks-abc123": false, "v1.21.0": false, "v1.27.9": false, "v1.27.9-eks-abc123": false,
		"v1.28.0": true, "v1.28.0-rc.1": true, "v1.33.1-eks-abc123": true, "v1.34.1-gke.100": true, "v1.32.5+k3s1": true, "v1.37.0": true,
	} {
		if got := chartutil.IsCompatibleRange(load(t).Metadata.KubeVersion, version); got != want {
			t.Errorf("The chart accepts Kubernetes %s: %t, want %t", version, got, want)
		}
	}
}

// TestDisruptionBudget checks that the budget does not block the drain of the node of a single replica for ever.
func TestDisruptionBudget(t *testing.T) {
	for replicas, want := range map[int]bool{0: false, 1: false, 2: true, 3: true} {
		text := mustRender(t, namespace, values{"replicas": replicas})["poddisruptionbudget.yaml"]
		if got := strings.TrimSpace(text) != ""; got != want {
			t.Errorf("Got a PodDisruptionBudget for %d replicas: %t, want %t", replicas, got, want)
		}
	}
}

// TestUninstallJob covers tools that take the hook for an ordinary Job. A changed Job has another name, because no tool can
// change its pod.
func TestUninstallJob(t *testing.T) {
	job := func(v values) (text, name string) {
		t.Helper()
		text = mustRender(t, namespace, v)["uninstall.yaml"]
		for _, doc := range documents(t, text) {
			var j batchv1.Job
			if err := yaml.Unmarshal(doc, &j); err == nil && j.Kind == "Job" {
				name = j.Name
			}
		}
		return text, name
	}
	image := func(tag string) values { return values{"image": values{"tag": tag}} }
	helm, name := job(image("1"))
	earlier, same := job(values{"image": values{"tag": "1"}, "uninstallJob": nil}) // As with the values of an earlier chart.
	if name == "" || name != same {
		t.Errorf("The Job is named %q, and %q the second time", name, same)
	}
	always, other := job(values{"image": values{"tag": "1"}, "uninstallJob": "Always"})
	if other == name || other == "" {
		t.Errorf("With Always, the Job has the name %q", other)
	}
	for _, v := range []values{
		image("2"),
		{"image": values{"tag": "1", "pullSecrets": []any{"x"}}},
		{"image": values{"tag": "1"}, "tolerations": []any{values{"operator": "Exists"}}},
		{"image": values{"tag": "1"}, "resources": values{"limits": values{"memory": "1Gi"}}},
	} {
		if _, other := job(v); other == name || other == "" {
			t.Errorf("With %v, the Job has the name %q", v, other)
		}
	}
	for text, want := range map[string]bool{helm: true, earlier: true, always: false} {
		if flag, reads := strings.Contains(text, "--helm-release=postern"), strings.Contains(text, "resources: [configmaps, secrets]"); flag != want || reads != want {
			t.Errorf("The Job looks for the release: %t, and may read it: %t, want %t", flag, reads, want)
		}
	}
	if text, _ := job(values{"uninstallJob": "Never"}); strings.TrimSpace(text) != "" {
		t.Errorf("Got %s, want nothing", text)
	}
}

// TestLint lints the chart as helm lint --strict does.
func TestLint(t *testing.T) {
	for name, v := range variants(t) {
		for _, m := range lint.All(chartDir(), v, namespace, true).Messages {
			if m.Severity >= support.WarningSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// TestArchive checks that Helm reads the archive of a release.
func TestArchive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "postern-chart.tgz")
	abs, err := filepath.Abs(chartDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "-C", installer("image"), ".", "chart", "-version", "v1.2.3", "-to", path, abs)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("Archiving the chart: %v: %s", err, out)
	}
	archived, err := loader.Load(path)
	if err != nil {
		t.Fatalf("Loading the archive: %v", err)
	}
	if m := archived.Metadata; m.Version != "1.2.3" || m.AppVersion != "v1.2.3" {
		t.Errorf("Got the version %s of the chart and %s of the program", m.Version, m.AppVersion)
	}
	v := values{"image": values{"tag": "dev"}}
	got, err := render(archived, namespace, v)
	if err != nil {
		t.Fatalf("Rendering the archive: %v", err)
	}
	if diff := cmp.Diff(mustRender(t, namespace, v), got); diff != "" {
		t.Errorf("The archive renders other objects (- folder, + archive):\n%s", diff)
	}
}

// TestValuesHaveReasons checks that every value of a preset has a comment above it, and that values.yaml has the value.
func TestValuesHaveReasons(t *testing.T) {
	defaults := load(t).Values
	for name, v := range variants(t) {
		if !strings.HasPrefix(name, "values-") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(chartDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		for key := range v {
			if _, ok := defaults[key]; !ok {
				t.Errorf("%s sets %s, which values.yaml lacks", name, key)
			}
		}
		lines := strings.Split(string(data), "\n")
		for i, line := range lines {
			value := line != "" && !strings.HasPrefix(strings.TrimSpace(line), "#")
			nested := strings.HasSuffix(line, ":") || strings.HasPrefix(strings.TrimSpace(line), "operator:")
			if value && !nested && (i == 0 || !strings.HasPrefix(strings.TrimSpace(lines[i-1]), "#")) {
				t.Errorf("%s:%d: %s has no reason", name, i+1, line)
			}
		}
	}
}

// TestPresets checks what each preset is for.
func TestPresets(t *testing.T) {
	for name, want := range map[string][]string{
		"values-eks.yaml":         {"topologyKey: topology.kubernetes.io/zone", "calico-system"},
		"values-eks-overlay.yaml": {"hostNetwork: true", "maxSurge: 0", "--health-bind-address=:18080"},
		"values-gke.yaml":         {"--secure-port=10250", "containerPort: 10250", "priorityClassName: system-cluster-critical"},
		"values-aks.yaml":         {"CriticalAddonsOnly", "tigera-operator"},
	} {
		texts := mustRender(t, namespace, variants(t)[name])
		if missing := slices.IndexFunc(want, func(s string) bool { return !strings.Contains(texts["deployment.yaml"], s) }); missing >= 0 {
			t.Errorf("The Deployment of %s lacks %q", name, want[missing])
		}
		if quota := strings.TrimSpace(texts["resourcequota.yaml"]) != ""; quota != (name == "values-gke.yaml") {
			t.Errorf("The quota of %s: got %t", name, quota)
		}
	}
}
