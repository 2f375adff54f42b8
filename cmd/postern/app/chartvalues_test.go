package app

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/router"
)

// chartValues returns the value program in the output of postern plugins --output=helm.
func chartValues(t *testing.T, p Program) chartProgram {
	t.Helper()
	var out, errs bytes.Buffer
	if code := p.Run(t.Context(), []string{"plugins", "--output=helm"}, &out, &errs); code != 0 || errs.Len() > 0 {
		t.Fatalf("Got the exit code %d: %s", code, errs.String())
	}
	var values struct {
		Program chartProgram `json:"program"`
	}
	if err := yaml.UnmarshalStrict(out.Bytes(), &values); err != nil {
		t.Fatalf("Decoding %s: %v", out.String(), err)
	}
	return values.Program
}

// TestChartValues compares the values of the chart with the plugins.
func TestChartValues(t *testing.T) {
	got := chartValues(t, Program{Families: admissions.Families()})
	if got.Services {
		t.Error("Postern has services without plugins")
	}
	var names []string
	needy := map[string]bool{"AlwaysDeny": true, "InitialResources": true, "ImagePolicyWebhook": true, "EventRateLimit": true, "DeletionGate": true, "FleetQuota": true}
	for _, p := range got.Plugins {
		names = append(names, p.Name)
		if p.Default != admissions.OnByDefault(p.Name) || p.NeedsConfiguration != needy[p.Name] || p.NeedsConfiguration && !p.Configurable {
			t.Errorf("Got %+v", p)
		}
		var want []rbacv1.PolicyRule
		for _, g := range rolesOf(t, "--admission-control="+p.Name).Plugins {
			want = append(want, g.PolicyRule)
		}
		if diff := cmp.Diff(want, p.Rules); diff != "" {
			t.Errorf("%s has other rules than its role (- role, + values):\n%s", p.Name, diff)
		}
	}
	if want := admissions.Families().Names(); !slices.Equal(names, want) {
		t.Errorf("Got the plugins %q, want %q", names, want)
	}
	if !slices.Contains(got.Configurations, "postern-pods") || !slices.Contains(got.Configurations, "postern-canary") {
		t.Errorf("Got the configurations %q", got.Configurations)
	}
}

// TestChartValuesOfServices is about a program that has only a service.
func TestChartValuesOfServices(t *testing.T) {
	service := func(admit.Deps) (router.AdmissionService, error) {
		return router.AdmissionService{
			Path:             "/own",
			Validate:         func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return nil },
			ValidatingConfig: &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "own"}},
		}, nil
	}
	got := chartValues(t, Program{Services: []ServiceFunc{service}})
	if !got.Services || !slices.Equal(got.Configurations, []string{"own", "postern-canary"}) || got.Plugins == nil || len(got.Plugins) != 0 {
		t.Errorf("Got %+v, want the configuration of the service and an empty list of plugins", got)
	}
}
