package admissions

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/dynamicinformer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/pkg/admit"
)

// needed holds the configurations of plugins that require one.
func needed() map[string]string {
	return map[string]string{
		"AlwaysDeny":         "everywhere: true",
		"DeletionGate":       "gates: [{name: database, selector: {matchLabels: {app: db}}, annotations: {a: b}, podCondition: example.com/drained}]",
		"EventRateLimit":     "{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Server, qps: 1, burst: 1}]}",
		"FleetQuota":         "{hub: {kubeConfigFile: fleetquota/fleetquota/testdata/hub.kubeconfig}, cluster: {name: eu-1}}",
		"ImagePolicyWebhook": "imagePolicy: {kubeConfigFile: pods/imagepolicywebhook/testdata/image-policy.kubeconfig}",
		"InitialResources":   "vpa: {}",
	}
}

// TestRegisteredRules compares the registered rules, of each plugin alone and of all plugins together, with
// golden files, so that every change is reviewed.
func TestRegisteredRules(t *testing.T) {
	var got strings.Builder
	got.WriteString("# What is registered for each plugin alone, and for all of them together.\n" +
		"# Written by: go test ./pkg/admissions -run TestRegisteredRules -update\n")
	section := func(title string, hooks []hook) {
		fmt.Fprintf(&got, "\n%s\n", title)
		for _, h := range hooks {
			fmt.Fprint(&got, h)
		}
		if len(hooks) == 0 {
			fmt.Fprintln(&got, "  nothing")
		}
	}
	for _, name := range Families().Names() {
		byDefault, all := registered(t, allGates(false), name), registered(t, allGates(true), name)
		section(name, byDefault)
		if !slices.EqualFunc(byDefault, all, func(a, b hook) bool { return a.String() == b.String() }) {
			section(name+" with every feature gate", all)
		}
	}
	section("NodeRestriction that fails closed", registeredWith(t, allGates(false), map[string]string{
		"NodeRestriction": "{failurePolicy: Fail, failOpenServiceAccounts: [{namespace: kube-system, name: network}]}",
	}))
	section("All plugins", registered(t, allGates(false), Families().Names()...))
	section("All plugins with every feature gate", registered(t, allGates(true), Families().Names()...))

	path := filepath.Join("testdata", "rules.golden")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("Reading what is to be registered: %v", err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("Something else is registered than %s says (- want, + got). If it is meant, run the test with -update:\n%s", path, diff)
	}
}

// TestTogetherNothingWider compares the rules of all plugins together with the rules of each plugin alone.
func TestTogetherNothingWider(t *testing.T) {
	for _, gates := range []gates{allGates(false), allGates(true)} {
		want := map[string]bool{}
		for _, name := range Families().Names() {
			maps.Copy(want, requestsOf(registered(t, gates, name)))
		}
		if len(want) == 0 {
			t.Fatal("Nothing is registered")
		}
		got := requestsOf(registered(t, gates, Families().Names()...))
		if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("With every gate %t, all together register others than each alone (- each, + all):\n%s", gates, diff)
		}
	}
}

// gates selects whether all feature gates are on or have their defaults.
type gates bool

func allGates(on bool) gates { return gates(on) }

// hook is one registered webhook.
type hook struct {
	phase, name string
	policy      *admissionregistrationv1.FailurePolicyType
	sideEffects *admissionregistrationv1.SideEffectClass
	rules       []admissionregistrationv1.RuleWithOperations
	conditions  []admissionregistrationv1.MatchCondition
}

func (h hook) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s %s, failure policy %s, side effects %s\n", h.phase, h.name, *h.policy, *h.sideEffects)
	for _, r := range h.rules {
		group := joined(r.APIGroups)
		if group == "" {
			group = "core"
		}
		fmt.Fprintf(&b, "    %s %s/%s %s, scope %s\n", joined(r.Operations), group, joined(r.APIVersions), joined(r.Resources), *r.Scope)
	}
	return b.String()
}

func joined[T ~string](list []T) string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, string(s))
	}
	return strings.Join(out, ",")
}

// registered returns the webhooks that Postern registers for these plugins, sorted by name.
func registered(t *testing.T, on gates, plugins ...string) []hook {
	t.Helper()
	configs := map[string]string{}
	for _, name := range plugins {
		configs[name] = needed()[name]
	}
	return registeredWith(t, on, configs)
}

// registeredWith is registered for plugins with these configurations, "" for none.
func registeredWith(t *testing.T, on gates, configs map[string]string) []hook {
	t.Helper()
	enabled := map[string][]byte{}
	for name, config := range configs {
		enabled[name] = nil
		if config != "" {
			enabled[name] = []byte(config)
		}
	}
	var hooks []hook
	for _, f := range Families() {
		s, err := f.Service(depsWith(t, on), enabled)
		if err != nil {
			t.Fatalf("Making the service of %v: %v", configs, err)
		}
		if c := s.MutatingConfig; c != nil {
			for _, w := range c.Webhooks {
				hooks = append(hooks, hook{"mutating", w.Name, w.FailurePolicy, w.SideEffects, w.Rules, w.MatchConditions})
			}
		}
		if c := s.ValidatingConfig; c != nil {
			for _, w := range c.Webhooks {
				hooks = append(hooks, hook{"validating", w.Name, w.FailurePolicy, w.SideEffects, w.Rules, w.MatchConditions})
			}
		}
	}
	return hooks
}

func depsWith(t *testing.T, on gates) admit.Deps {
	t.Helper()
	features, err := Families().Features()
	if err != nil {
		t.Fatal(err)
	}
	if on {
		for name, spec := range features.GetAll() {
			if spec.LockToDefault {
				continue
			}
			if err := features.SetFromMap(map[string]bool{string(name): true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	client, dyn := fake.NewClientset(), dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	custom := dynamicinformer.NewDynamicSharedInformerFactory(dyn, 0)
	return admit.Deps{
		Client: client, Dynamic: dyn, Metadata: metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()), Informers: informers.NewSharedInformerFactory(client, 0),
		CustomInformers: custom, OptionalInformers: custom, RESTMapper: meta.NewDefaultRESTMapper(nil),
		Authorize: func(context.Context, authorizationv1.SubjectAccessReviewSpec) (admit.Decision, error) {
			return admit.Decision{}, nil
		},
		Features: features, Clock: clock.RealClock{}, Namespace: "postern-system", Go: func(func(context.Context)) {},
	}
}

// requestsOf returns every combination in the rules of the webhooks, by family and phase.
func requestsOf(hooks []hook) map[string]bool {
	out := map[string]bool{}
	for _, h := range hooks {
		family, _, _ := strings.Cut(strings.TrimSuffix(h.name, "."+admit.Domain), "-")
		for _, r := range h.rules {
			for _, op := range r.Operations {
				for _, group := range r.APIGroups {
					for _, version := range r.APIVersions {
						for _, resource := range r.Resources {
							out[strings.Join([]string{family, h.phase, string(op), group, version, resource, string(*r.Scope)}, " ")] = true
						}
					}
				}
			}
		}
	}
	return out
}
