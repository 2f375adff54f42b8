package app

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
	"github.com/postern-dev/postern/pkg/router"
)

// printed returns the output of the rbac command.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := (Program{Families: admissions.Families()}).Run(t.Context(), append([]string{"rbac"}, args...), &out, &errs); code != 0 {
		t.Fatalf("Got the exit code %d: %s", code, errs.String())
	}
	return out.String()
}

func documentsOf(t *testing.T, text []byte) [][]byte {
	t.Helper()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	var out [][]byte
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, doc)
	}
}

// TestPrintedRoles decodes what is printed and compares it with the roles.
func TestPrintedRoles(t *testing.T) {
	const namespace = "123" // A name that YAML reads as a number without quotes.
	args := []string{"--enable-admission-plugins=" + strings.Join(admissions.Families().Names(), ","), "--webhook-namespace=" + namespace}
	r := rolesOf(t, args...)
	rules := map[string][]rbacv1.PolicyRule{}
	bound := map[string]string{}
	for _, doc := range documentsOf(t, []byte(printed(t, append(args, "--service-account=me")...))) {
		var role rbacv1.ClusterRole
		var binding rbacv1.ClusterRoleBinding
		if yaml.UnmarshalStrict(doc, &role) == nil {
			rules[role.Kind+" "+role.Namespace+"/"+role.Name] = role.Rules
		} else if err := yaml.UnmarshalStrict(doc, &binding); err != nil {
			t.Errorf("Decoding %s: %v", doc, err)
		} else {
			bound[binding.RoleRef.Kind+" "+binding.Namespace+"/"+binding.RoleRef.Name] = binding.Subjects[0].Namespace + "/" + binding.Subjects[0].Name
		}
	}
	want := map[string][]rbacv1.PolicyRule{
		"ClusterRole /postern-123": rulesOf(r.Process), "Role 123/postern": rulesOf(r.Local), "ClusterRole /postern-plugins-123": rulesOf(r.Plugins),
	}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("Got other rules (- want, + got):\n%s", diff)
	}
	for role := range want {
		if got := bound[role]; got != "123/me" {
			t.Errorf("Got %s bound to %q, want 123/me", role, got)
		}
	}
}

func rulesOf(grants []grant) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, g := range grants {
		out = append(out, g.PolicyRule)
	}
	return out
}

// TestRolesOfPlugins checks that the roles grant a set of plugins what they declare, and nothing else.
func TestRolesOfPlugins(t *testing.T) {
	for p := range admissions.Families().Plugins() {
		got := access.Of(rulesOf(rolesOf(t, "--admission-control="+p.Name).Plugins))
		if want := access.Of(p.Access); !slices.Equal(got, want) {
			t.Errorf("Got the permissions %v for %s, want %v", got, p.Name, want)
		}
	}
	two := rolesOf(t, "--enable-admission-plugins=PodNodeSelector,NamespaceAutoProvision").Plugins
	want := []grant{
		{"NamespaceAutoProvision, PodNodeSelector", access.To("", "namespaces", "get", "list", "watch", "create")},
		{"NamespaceAutoProvision", access.To("", "events", "create")},
	}
	if diff := cmp.Diff(want, two); diff != "" {
		t.Errorf("Got other permissions for two plugins (- want, + got):\n%s", diff)
	}
}

// TestRolesOfFlags checks the permissions that depend on flags.
func TestRolesOfFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		// grants and lacks are permissions of the process with the name of an object.
		grants, lacks []string
	}{
		{nil, []string{"create secrets ", "get secrets postern-ca", "update secrets postern-ca", "get services postern"}, []string{"get secrets postern-path", "get secrets ", "list secrets ", "create tokenreviews ", "create subjectaccessreviews "}},
		{[]string{"--cert-dir=x"}, nil, []string{"create secrets ", "get secrets postern-ca"}},
		{[]string{"--tls-cert-file=x", "--tls-private-key-file=y"}, []string{"create secrets ", "get secrets postern-path"}, []string{"get secrets postern-ca", "update secrets postern-path"}},
		{[]string{"--tls-cert-file=x", "--tls-private-key-file=y", "--client-ca-file=z"}, nil, []string{"create secrets ", "get secrets postern-path"}},
		{[]string{"--webhook-service=other:8443"}, []string{"get services other"}, []string{"get services postern"}},
		{[]string{"--webhook-url=https://example.com"}, nil, []string{"get services postern"}},
		{[]string{"--metrics-authorization"}, []string{"create tokenreviews ", "create subjectaccessreviews "}, nil},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			r := rolesOf(t, tt.args...)
			has := func(permission string) bool {
				return slices.ContainsFunc(slices.Concat(r.Process, r.Local), func(g grant) bool {
					verb, rest, _ := strings.Cut(permission, " ")
					resource, name, _ := strings.Cut(rest, " ")
					return slices.Contains(g.Verbs, verb) && slices.Contains(g.Resources, resource) && slices.Contains(append(g.ResourceNames, ""), name) && (name != "") == (len(g.ResourceNames) > 0)
				})
			}
			for _, p := range tt.grants {
				if !has(p) {
					t.Errorf("The roles lack %q", p)
				}
			}
			for _, p := range tt.lacks {
				if has(p) {
					t.Errorf("The roles have %q", p)
				}
			}
		})
	}
}

// TestRolesOfACustomProgram checks that the roles name the configurations of added families and services.
func TestRolesOfACustomProgram(t *testing.T) {
	service := func(d admit.Deps) (router.AdmissionService, error) {
		d.Informers.Core().V1().Namespaces().Lister()
		return router.AdmissionService{Path: "/x", ValidatingConfig: &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "cost-center"},
		}}, nil
	}
	o := &options{Program: Program{Families: admissions.List{{Name: "acme"}}, Services: []ServiceFunc{service}}}
	if _, err := o.init(); err != nil {
		t.Fatal(err)
	}
	o.webhookNamespace, o.webhookService = "elsewhere", "postern"
	got, err := o.roles()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"cost-center-elsewhere", "postern-acme-elsewhere", "postern-canary-elsewhere"}
	if !slices.Equal(got.Process[1].ResourceNames, want) {
		t.Errorf("Got the names %v, want %v", got.Process[1].ResourceNames, want)
	}
}
