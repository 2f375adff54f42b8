package helm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/pkg/admissions"
)

// printed returns the output of postern rbac.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, builtIn(), append([]string{"rbac"}, args...)...)
}

// rolesOf returns the rules of the roles in a text, by kind and name.
func rolesOf(t *testing.T, text string) map[string][]rbacv1.PolicyRule {
	t.Helper()
	out := map[string][]rbacv1.PolicyRule{}
	for _, doc := range documents(t, text) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(doc, &role); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(role.Kind, "Binding") {
			out[role.Kind+"/"+role.Name] = role.Rules
		}
	}
	return out
}

// flat returns every permission of the roles and every binding as one line each.
func flat(t *testing.T, text string) []string {
	t.Helper()
	var out []string
	for _, doc := range documents(t, text) {
		var binding rbacv1.ClusterRoleBinding
		if err := yaml.UnmarshalStrict(doc, &binding); err == nil && len(binding.Subjects) > 0 {
			out = append(out, fmt.Sprintf("%s %s/%s: %v %v", binding.Kind, binding.Namespace, binding.Name, binding.RoleRef, binding.Subjects))
			continue
		}
		var role rbacv1.ClusterRole
		if err := yaml.UnmarshalStrict(doc, &role); err != nil {
			t.Fatalf("Decoding %s: %v", doc, err)
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						out = append(out, fmt.Sprintf("%s %s/%s: %s %s/%s %v", role.Kind, role.Namespace, role.Name, verb, group, resource, rule.ResourceNames))
					}
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// arguments returns the arguments of the container in a rendered Deployment.
func arguments(t *testing.T, texts map[string]string) []string {
	t.Helper()
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(texts["deployment.yaml"]), &d); err != nil {
		t.Fatalf("Decoding the Deployment: %v", err)
	}
	return d.Spec.Template.Spec.Containers[0].Args
}

// TestRoles compares the roles of the chart with what postern rbac prints for the arguments of the Deployment.
func TestRoles(t *testing.T) {
	cases := map[string]values{
		"the default":             {},
		"no plugin":               {"plugins": []any{}, "allowNoPlugins": true},
		"nothing in the server":   {"apiServerPlugins": []any{"none"}},
		"some in the server":      {"apiServerPlugins": []any{"NamespaceLifecycle", "ResourceQuota"}, "disabledPlugins": []any{"Priority"}},
		"metrics with tokens":     {"metrics": values{"authorization": true}},
		"a certificate":           {"certificates": values{"secretName": "x"}},
		"cert-manager":            {"certificates": values{"certManager": values{"enabled": true}}},
		"enabled and disabled":    {"plugins": []any{"Priority"}, "disabledPlugins": []any{"Priority"}},
		"all plugins":             configured(admissions.Families().Names()...),
		"with the node's network": {"hostNetwork": true, "securePort": 18443},
	}
	for _, name := range admissions.Families().Names() {
		cases[name] = configured(name)
	}
	for name, v := range cases {
		t.Run(name, func(t *testing.T) {
			for _, ns := range []string{namespace, "elsewhere", "123"} {
				texts := mustRender(t, ns, v)
				if diff := cmp.Diff(flat(t, printed(t, arguments(t, texts)...)), flat(t, texts["rbac.yaml"])); diff != "" {
					t.Errorf("In namespace %s the chart has other roles (- postern rbac, + chart):\n%s", ns, diff)
				}
			}
		})
	}
}

// TestRemovedPluginsKeepTheirRules upgrades a release in a cluster that has its roles. The replicas of the release run until
// the rollout has ended, so their plugins keep their rules until the next upgrade.
func TestRemovedPluginsKeepTheirRules(t *testing.T) {
	for _, ns := range []string{namespace, "elsewhere"} {
		t.Run(ns, func(t *testing.T) {
			var cluster stored
			upgrade := func(plugins ...any) []string {
				texts := cluster.render(t, ns, values{"plugins": plugins, "allowNoPlugins": true})
				cluster.apply(t, texts["rbac.yaml"])
				return flat(t, texts["rbac.yaml"])
			}
			alone := func(plugins ...any) []string {
				return flat(t, mustRender(t, ns, values{"plugins": plugins, "allowNoPlugins": true})["rbac.yaml"])
			}
			for _, step := range []struct {
				name      string
				got, want []string
			}{
				{"the installation", upgrade("Priority", "PodNodeSelector"), alone("Priority", "PodNodeSelector")},
				{"an upgrade to another plugin", upgrade("LimitRanger"), alone("Priority", "PodNodeSelector", "LimitRanger")},
				{"the same upgrade again", upgrade("LimitRanger"), alone("LimitRanger")},
				{"an upgrade to no plugin", upgrade(), alone("LimitRanger")},
				{"the last upgrade", upgrade(), alone()},
			} {
				if diff := cmp.Diff(step.want, step.got); diff != "" {
					t.Errorf("After %s the roles differ (- want, + got):\n%s", step.name, diff)
				}
			}
			cluster.annotate("NoPlugin,Priority")
			if diff := cmp.Diff(alone("Priority"), upgrade()); diff != "" {
				t.Errorf("With an unknown plugin in the annotation the roles differ (- want, + got):\n%s", diff)
			}
		})
	}
}

// stored is a cluster with the ClusterRoles of a release.
type stored []runtime.Object

// render renders the templates of the chart, which look for objects in the cluster.
func (s *stored) render(t *testing.T, namespace string, v values) map[string]string {
	t.Helper()
	texts, err := renderOn(load(t), namespace, v, chartutil.DefaultCapabilities, func(c *chart.Chart, v chartutil.Values) (map[string]string, error) {
		return engine.RenderWithClientProvider(c, v, s)
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// apply replaces the objects of the cluster.
func (s *stored) apply(t *testing.T, text string) {
	t.Helper()
	*s = nil
	for _, doc := range documents(t, text) {
		var u unstructured.Unstructured
		if err := yaml.Unmarshal(doc, &u.Object); err != nil {
			t.Fatal(err)
		}
		if u.GetKind() == "ClusterRole" {
			*s = append(*s, &u)
		}
	}
}

func (s *stored) annotate(plugins string) {
	for _, o := range *s {
		o.(*unstructured.Unstructured).SetAnnotations(map[string]string{"postern.dev/plugins": plugins})
	}
}

// addRule adds a rule to each role.
func (s *stored) addRule(rule map[string]any) {
	for _, o := range *s {
		role := o.(*unstructured.Unstructured).Object
		role["rules"] = append(role["rules"].([]any), rule)
	}
}

// GetClientFor implements engine.ClientProvider.
func (s *stored) GetClientFor(_, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	if kind != "ClusterRole" {
		return nil, false, fmt.Errorf("the chart looks for a %s", kind)
	}
	client := fake.NewSimpleDynamicClient(runtime.NewScheme(), *s...)
	return client.Resource(rbacv1.SchemeGroupVersion.WithResource("clusterroles")), false, nil
}

// configured returns values that enable plugins, with a configuration for those that need one.
func configured(plugins ...string) values {
	v := values{"plugins": []any{}, "configuration": values{}}
	for _, name := range plugins {
		v["plugins"] = append(v["plugins"].([]any), name)
		if slices.Contains([]string{"AlwaysDeny", "InitialResources", "ImagePolicyWebhook", "EventRateLimit", "DeletionGate", "FleetQuota"}, name) {
			v["configuration"].(values)[name] = values{"some": "value"}
		}
	}
	return v
}
