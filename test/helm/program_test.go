package helm

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chartutil"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/cmd/postern/app"
	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
	"github.com/postern-dev/postern/pkg/router"
)

// acme is a family with a plugin that reads and writes objects, and with one that needs a configuration.
func acme() admit.Family {
	return admit.Family{Name: "acme", Plugins: []*admit.Plugin{
		{
			Name: "AcmeBudget", Configurable: true, Rules: []admit.Rule{admit.On("services", "CREATE")},
			Access: access.Rules{access.Lookup("", "namespaces"), access.To("acme.example.com", "budgets", "update", "get"), access.Review()},
			New:    func(admit.Deps, []byte) (admit.Handler, error) { return admit.Handler{}, nil },
		},
		{
			Name: "AcmeOwner", Configurable: true, Rules: []admit.Rule{admit.On("services", "CREATE")},
			New: func(_ admit.Deps, data []byte) (admit.Handler, error) {
				if data == nil {
					return admit.Handler{}, errors.New("the configuration is missing")
				}
				return admit.Handler{}, nil
			},
		},
	}}
}

// costCenter is a service without plugins.
func costCenter(admit.Deps) (router.AdmissionService, error) {
	return router.AdmissionService{
		Path:             "/cost-center",
		Validate:         func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return nil },
		ValidatingConfig: &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cost-center"}},
	}, nil
}

// valuesOf returns the values that a program prints for the chart, with others.
func valuesOf(t *testing.T, p app.Program, others values) values {
	t.Helper()
	v, err := chartutil.ReadValues([]byte(run(t, p, "plugins", "--output=helm")))
	if err != nil {
		t.Fatal(err)
	}
	return chartutil.CoalesceTables(values{}, chartutil.CoalesceTables(v, others))
}

// programs are programs with plugins and services of somebody else.
func programs() map[string]app.Program {
	return map[string]app.Program{
		"beside Postern's": {Families: append(admissions.Families(), acme()), Services: []app.ServiceFunc{costCenter}},
		"alone":            {Families: admissions.List{acme()}, Services: []app.ServiceFunc{costCenter}},
		"only a service":   {Services: []app.ServiceFunc{costCenter}},
	}
}

// TestProgram compares the roles of the chart with those that a program prints for the arguments of the Deployment.
func TestProgram(t *testing.T) {
	owner := values{"AcmeOwner": values{"owner": "me"}}
	for name, cases := range map[string][]values{
		"beside Postern's": {
			{},
			{"plugins": []any{}},
			{"plugins": []any{"AcmeBudget"}},
			{"plugins": []any{"AcmeOwner", "AcmeBudget", "PodNodeSelector", "Priority"}, "configuration": owner},
			{"plugins": []any{"AcmeBudget"}, "apiServerPlugins": []any{"none"}, "disabledPlugins": []any{"AcmeOwner", "Priority"}},
		},
		"alone":          {{"plugins": []any{}}, {"plugins": []any{"AcmeBudget"}}, {"plugins": []any{"AcmeOwner"}, "configuration": owner}},
		"only a service": {{"plugins": []any{}}},
	} {
		p, configurations := programs()[name], []string{"cost-center", "postern-canary"}
		if len(p.Families) > 0 {
			configurations = append(configurations, "postern-acme")
		}
		for _, v := range cases {
			for ns, suffix := range map[string]string{namespace: "", "elsewhere": "-elsewhere"} {
				texts := mustRender(t, ns, valuesOf(t, p, v))
				args := arguments(t, texts)
				if diff := cmp.Diff(flat(t, run(t, p, append([]string{"rbac"}, args...)...)), flat(t, texts["rbac.yaml"])); diff != "" {
					t.Errorf("%s: with %v in namespace %s the chart has other roles (- rbac, + chart):\n%s", name, v, ns, diff)
				}
				checkUninstallRole(t, texts["uninstall.yaml"], suffix, configurations...)
			}
		}
	}
}

// checkUninstallRole checks that the Job may delete the configurations of the program.
func checkUninstallRole(t *testing.T, text, suffix string, configurations ...string) {
	t.Helper()
	var may []string
	for _, rule := range rolesOf(t, text)["ClusterRole/postern-uninstall"+suffix] {
		if slices.Equal(rule.Verbs, []string{"delete"}) {
			may = append(may, rule.ResourceNames...)
		}
	}
	for _, name := range configurations {
		if !slices.Contains(may, name+suffix) {
			t.Errorf("The Job may delete %q, want also %s", may, name+suffix)
		}
	}
}

// TestReplacedProgram replaces a program with Postern. Its replicas remove the configurations that the program has registered.
func TestReplacedProgram(t *testing.T) {
	for ns, suffix := range map[string]string{namespace: "", "elsewhere": "-elsewhere"} {
		var cluster stored
		cluster.apply(t, cluster.render(t, ns, valuesOf(t, programs()["beside Postern's"], values{}))["rbac.yaml"])
		// Whoever may get a configuration of somebody else can add this rule to the role. It must not become a right to delete.
		cluster.addRule(map[string]any{"apiGroups": []any{"admissionregistration.k8s.io"}, "resources": []any{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}, "resourceNames": []any{"foreign"}, "verbs": []any{"get"}})
		texts := cluster.render(t, ns, values{})
		names := rolesOf(t, texts["rbac.yaml"])["ClusterRole/postern"+suffix][1].ResourceNames
		for _, name := range []string{"cost-center" + suffix, "postern-acme" + suffix, "postern-pods" + suffix} {
			if !slices.Contains(names, name) {
				t.Errorf("The role names %q, want also %s", names, name)
			}
		}
		if slices.Contains(names, "foreign") || strings.Contains(texts["uninstall.yaml"], "foreign") {
			t.Errorf("The role names %q, and not only what the release could delete", names)
		}
		if once := slices.Compact(slices.Sorted(slices.Values(names))); len(once) != len(names) {
			t.Errorf("The role names %q, some of them twice", names)
		}
		checkUninstallRole(t, texts["uninstall.yaml"], suffix, "cost-center", "postern-acme", "postern-pods")
	}
}

// TestProgramMistakes is about values that do not fit the program.
func TestProgramMistakes(t *testing.T) {
	own := programs()["beside Postern's"]
	budget := values{"plugins": []any{"AcmeBudget"}}
	limit := values{"configuration": values{"AcmeBudget": values{"limit": 1}}}
	for name, tc := range map[string]struct {
		values values
		want   string
	}{
		"a plugin without the program":        {budget, "plugins: there is no plugin AcmeBudget; there are: "},
		"a configuration without the program": {limit, "configuration: there is no plugin AcmeBudget; there are: "},
		"no plugin without the program":       {values{"plugins": []any{}}, "plugins: no plugin is enabled"},
		"an unknown plugin":                   {valuesOf(t, own, values{"plugins": []any{"AcmeBudgets"}}), "plugins: there is no plugin AcmeBudgets; there are: AcmeBudget, AcmeOwner, AlwaysAdmit, "},
		"a plugin that is not enabled":        {valuesOf(t, own, limit), "configuration.AcmeBudget: the plugin is not enabled"},
		"a plugin without its configuration":  {valuesOf(t, own, values{"plugins": []any{"AcmeOwner"}}), "plugins: AcmeOwner needs a configuration"},
		"a default plugin of another program": {valuesOf(t, programs()["alone"], values{}), "plugins: there is no plugin AlwaysPullImages; there are: AcmeBudget, AcmeOwner."},
	} {
		if _, err := render(load(t), namespace, tc.values); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tc.want)
		}
	}
}
