package helm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/pkg/admissions"
)

// printed returns the output of postern rbac.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := postern(t, append([]string{"rbac"}, args...)...)
	if code != 0 {
		t.Fatalf("postern rbac %q: exit code %d: %s", args, code, errs)
	}
	return out
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
		"no plugin":               {"plugins": []any{}},
		"nothing in the server":   {"apiServerPlugins": []any{"none"}},
		"some in the server":      {"apiServerPlugins": []any{"NamespaceLifecycle", "ResourceQuota"}, "disabledPlugins": []any{"Priority"}},
		"metrics with tokens":     {"metrics": values{"authorization": true}},
		"a certificate":           {"certificates": values{"secretName": "x"}},
		"cert-manager":            {"certificates": values{"certManager": values{"enabled": true}}},
		"enabled and disabled":    {"plugins": []any{"Priority"}, "disabledPlugins": []any{"Priority"}},
		"all plugins":             {"plugins": everyPlugin()},
		"with the node's network": {"hostNetwork": true, "securePort": 18443},
	}
	for _, name := range admissions.Families().Names() {
		cases[name] = values{"plugins": []any{name}}
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

func everyPlugin() []any {
	var out []any
	for _, name := range admissions.Families().Names() {
		out = append(out, name)
	}
	return out
}
