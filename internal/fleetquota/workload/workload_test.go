package workload_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/featuregate"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/internal/fleetquota/workload"
	"github.com/postern-dev/postern/internal/kinds/podspec"
)

// custom is a kind with a list of groups, as a RayCluster has it.
func custom(absent int64, replicas ...string) workload.Kind {
	return workload.Kind{
		GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "teams"}, Kind: "Team",
		Custom: &workload.Custom{Groups: []workload.Group{{Path: "spec.groups.*", Replicas: replicas, Absent: absent, Template: "template"}}},
	}
}

// kindsOf returns the kinds of k8s.io/api, and a custom one.
func kindsOf(tb testing.TB, settings workload.Settings, team workload.Kind) *workload.Kinds {
	tb.Helper()
	gates := featuregate.NewFeatureGate()
	if err := gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{podspec.PodLevelResources: podspec.QOSFeatures()[podspec.PodLevelResources]}); err != nil {
		tb.Fatal(err)
	}
	return workload.New(settings, gates, testingclock.NewFakeClock(time.Now()), team)
}

// cachedOf returns an object as a cache has it, and requestedOf as a request has it.
func cachedOf(tb testing.TB, text string) *unstructured.Unstructured {
	tb.Helper()
	u := &unstructured.Unstructured{}
	doc, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = u.UnmarshalJSON(doc)
	}
	if err != nil {
		tb.Fatalf("%.200s: %v", text, err)
	}
	return u
}

func requestedOf(tb testing.TB, u *unstructured.Unstructured) runtime.Object {
	tb.Helper()
	typed, err := scheme.Scheme.New(u.GroupVersionKind())
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return typed
}

// measure measures an object as a cache has it, and, for a kind of k8s.io/api, also as a request has it.
func measure(tb testing.TB, settings workload.Settings, team workload.Kind, resource, text string) (*workload.Workload, error) {
	tb.Helper()
	kinds := kindsOf(tb, settings, team)
	kind := kinds.Find(schema.ParseGroupResource(resource))
	if kind == nil {
		tb.Fatalf("%s is not counted", resource)
	}
	u := cachedOf(tb, text)
	cached, err := kinds.Measure(kind, u)
	if kind.Custom != nil || err != nil {
		return cached, err
	}
	requested, err := kinds.Measure(kind, requestedOf(tb, u))
	if err != nil || amounts(requested.Usage) != amounts(cached.Usage) || amounts(requested.Run) != amounts(cached.Run) {
		tb.Errorf("Got %+v and %v for the object of a request, want %+v as for that of a cache", requested, err, cached)
	}
	return cached, nil
}

// amounts returns pods and CPUs as text.
func amounts(l corev1.ResourceList) string {
	number, cpu := l[corev1.ResourcePods], l[corev1.ResourceRequestsCPU]
	return number.String() + " " + cpu.String()
}

// object returns an object whose spec has these fields and a template of pods with 2 CPUs.
func object(apiVersion, kind, fields string) string {
	template := "template: {spec: {containers: [{name: main, resources: {requests: {cpu: 2}}}]}}"
	spec := "{" + template + fields + "}"
	if kind == "CronJob" {
		run, own, _ := strings.Cut(fields, ";")
		spec = "{jobTemplate: {spec: {" + template + run + "}}" + own + "}"
	}
	if kind == "Team" {
		spec = "{groups: [{" + template + fields + "}]}"
	}
	return fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: a, namespace: shop}, spec: %s}", apiVersion, kind, spec)
}

// TestAbsentNumbers measures objects whose numbers are absent, null, zero or negative. Absent and null numbers have the
// default of the API, and a negative number makes no room. Usage and run are the pods and the CPUs.
func TestAbsentNumbers(t *testing.T) {
	for _, test := range []struct{ kind, fields, usage, run string }{
		{"Deployment", "", "1 2", "0 0"},
		{"Deployment", ", replicas: null", "1 2", "0 0"},
		{"Deployment", ", replicas: 0", "0 0", "0 0"},
		{"Deployment", ", replicas: -3", "0 0", "0 0"},
		{"StatefulSet", "", "1 2", "0 0"},
		{"StatefulSet", ", replicas: null", "1 2", "0 0"},
		{"StatefulSet", ", replicas: -3", "0 0", "0 0"},
		{"ReplicaSet", "", "1 2", "0 0"},
		{"ReplicaSet", ", replicas: null", "1 2", "0 0"},
		{"ReplicaSet", ", replicas: -3", "0 0", "0 0"},
		{"Job", "", "1 2", "0 0"},
		{"Job", ", parallelism: null, completions: null", "1 2", "0 0"},
		// A work queue: the number of completions is not known.
		{"Job", ", parallelism: 4", "4 8", "0 0"},
		{"Job", ", completions: 4", "1 2", "0 0"},
		{"Job", ", parallelism: 4, completions: 3", "3 6", "0 0"},
		{"Job", ", parallelism: 4, completions: null", "4 8", "0 0"},
		{"Job", ", parallelism: 0, completions: 3", "0 0", "0 0"},
		{"Job", ", parallelism: 3, completions: 0", "0 0", "0 0"},
		{"Job", ", parallelism: -3", "0 0", "0 0"},
		{"Job", ", parallelism: 3, suspend: null", "3 6", "0 0"},
		{"CronJob", "", "0 0", "1 2"},
		{"CronJob", ", parallelism: 4;, concurrencyPolicy: null", "0 0", "4 8"},
		{"CronJob", ", parallelism: 4, completions: 3;, concurrencyPolicy: Allow", "0 0", "3 6"},
		{"CronJob", ";, concurrencyPolicy: Forbid", "1 2", "0 0"},
		{"CronJob", ", parallelism: null;, concurrencyPolicy: Replace, suspend: null", "1 2", "0 0"},
		{"CronJob", ", parallelism: 4;, concurrencyPolicy: Forbid, suspend: true", "0 0", "4 8"},
		{"CronJob", ", parallelism: -4;, concurrencyPolicy: Forbid", "0 0", "0 0"},
		// Its Jobs start suspended.
		{"CronJob", ", parallelism: 4, suspend: true;, concurrencyPolicy: Forbid", "0 0", "0 0"},
		{"Team", "", "1 2", "0 0"},
		{"Team", ", replicas: null", "1 2", "0 0"},
		{"Team", ", replicas: 0", "0 0", "0 0"},
		{"Team", ", replicas: -3", "0 0", "0 0"},
		{"Team", ", replicas: -3, hosts: -3", "0 0", "0 0"},
		{"Team", ", replicas: 3, hosts: null", "3 6", "0 0"},
	} {
		t.Run(test.kind+test.fields, func(t *testing.T) {
			apiVersion, resource := "apps/v1", strings.ToLower(test.kind)+"s.apps"
			switch test.kind {
			case "Job", "CronJob":
				apiVersion, resource = "batch/v1", strings.ToLower(test.kind)+"s.batch"
			case "Team":
				apiVersion, resource = "example.com/v1", "teams.example.com"
			}
			w, err := measure(t, workload.Settings{}, custom(1, "replicas", "hosts"), resource, object(apiVersion, test.kind, test.fields))
			if err != nil {
				t.Fatal(err)
			}
			if usage, run := amounts(w.Usage), amounts(w.Run); usage != test.usage || run != test.run {
				t.Errorf("Got %s, and %s for a run, want %s and %s", usage, run, test.usage, test.run)
			}
		})
	}
}

// TestFarTimeOfAFieldManager measures an object with a time that no decoder reads. Its author can write it in each object, also
// later without a request to Postern, and the object must not count as nothing then.
func TestFarTimeOfAFieldManager(t *testing.T) {
	kinds := kindsOf(t, workload.Settings{}, custom(1))
	u := cachedOf(t, object("apps/v1", "Deployment", ", replicas: 3"))
	u.Object["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{"manager": "m", "operation": "Update", "time": "10000-01-01T00:59:59Z"}}
	before := u.DeepCopy()
	w, err := kinds.Measure(kinds.Find(schema.ParseGroupResource("deployments.apps")), u)
	if err != nil || amounts(w.Usage) != "3 6" {
		t.Errorf("Got %+v and %v, want 3 pods with 6 CPUs", w, err)
	}
	if !reflect.DeepEqual(u, before) {
		t.Error("The object was changed")
	}
}

// TestEnormousNumbers measures objects whose numbers, or whose products of numbers, int64 cannot represent. The amounts
// are exact, or at least beyond any limit.
func TestEnormousNumbers(t *testing.T) {
	const most = "2147483647"
	for _, test := range []struct {
		name, kind, fields, pods string
		settings                 workload.Settings
		team                     workload.Kind
	}{
		{name: "a Deployment", kind: "Deployment", fields: ", replicas: " + most, pods: most},
		{name: "the surge of a Deployment", kind: "Deployment", fields: ", replicas: " + most + ", strategy: {rollingUpdate: {maxSurge: 100%}}", pods: "4294967294", settings: workload.Settings{CountSurge: true}},
		{name: "a number of surge pods", kind: "Deployment", fields: ", replicas: " + most + ", strategy: {rollingUpdate: {maxSurge: " + most + "}}", pods: "4294967294", settings: workload.Settings{CountSurge: true}},
		// API servers accept any number of percents.
		{name: "a surge beyond int64", kind: "Deployment", fields: ", replicas: 2000, strategy: {rollingUpdate: {maxSurge: 9000000000000000000%}}", pods: "2147485647", settings: workload.Settings{CountSurge: true}},
		{name: "percents beyond int64", kind: "Deployment", fields: ", replicas: 2000, strategy: {rollingUpdate: {maxSurge: 99999999999999999999%}}", pods: "2147485647", settings: workload.Settings{CountSurge: true}},
		{name: "a DaemonSet", kind: "DaemonSet", pods: "9223372036854775807", settings: workload.Settings{DaemonSetNodes: 1<<63 - 1}},
		{name: "a custom resource", kind: "Team", fields: ", replicas: 9223372036854775807", pods: most, team: custom(1, "replicas")},
		{
			name: "a product of three numbers", kind: "Team", fields: ", a: 9223372036854775807, b: 4294967296, c: 4294967296",
			pods: "4611686014132420609", team: custom(1, "a", "b", "c"),
		},
		{name: "numbers that are not set", kind: "Team", pods: "4611686014132420609", team: custom(1<<63-1, "a", "b")},
		{name: "one number that is not set", kind: "Team", fields: ", a: 3", pods: "6442450941", team: custom(1<<63-1, "a", "b")},
	} {
		t.Run(test.name, func(t *testing.T) {
			apiVersion, resource := "apps/v1", strings.ToLower(test.kind)+"s.apps"
			if test.kind == "Team" {
				apiVersion, resource = "example.com/v1", "teams.example.com"
			}
			w, err := measure(t, test.settings, test.team, resource, object(apiVersion, test.kind, test.fields))
			if err != nil {
				t.Fatal(err)
			}
			number, cpus := w.Usage[corev1.ResourcePods], w.Usage[corev1.ResourceRequestsCPU]
			if number.String() != test.pods {
				t.Errorf("Got %s pods, want %s", number.String(), test.pods)
			}
			if cpus.Sub(number); cpus.Cmp(number) != 0 {
				t.Errorf("Got %s CPUs besides one for each pod, want %s", cpus.String(), number.String())
			}
			if n := w.Pods(); n <= 0 {
				t.Errorf("Got %d pods, want a positive number", n)
			}
		})
	}
}

// TestEnormousSums adds up pods of several groups, each of which is as large as int64 can represent. The amounts are
// exact. The number of pods, by which an update is compared with the object before, is the largest one.
func TestEnormousSums(t *testing.T) {
	group := "{a: 2147483647, b: 2147483647, template: {spec: {containers: [" +
		"{name: a, resources: {requests: {cpu: 9E, memory: 7Ei}}}, {name: b, resources: {requests: {cpu: 9E, memory: 7Ei}}}]}}}"
	text := "{apiVersion: example.com/v1, kind: Team, metadata: {name: a}, spec: {groups: [" + strings.Repeat(group+", ", 3) + "]}}"
	w, err := measure(t, workload.Settings{}, custom(1, "a", "b"), "teams.example.com", text)
	if err != nil {
		t.Fatal(err)
	}
	pods := resource.MustParse("4611686014132420609")
	for name, each := range map[corev1.ResourceName]string{corev1.ResourcePods: "1", corev1.ResourceRequestsCPU: "18E", corev1.ResourceRequestsMemory: "16140901064495857664"} {
		want, got := resource.MustParse("0"), w.Usage[name]
		for range 3 {
			product := resource.MustParse(each)
			product.Mul(pods.Value())
			want.Add(product)
		}
		if got.Cmp(want) != 0 {
			t.Errorf("%s: got %s, want %s", name, got.String(), want.String())
		}
	}
	if n := w.Pods(); n != 1<<63-1 {
		t.Errorf("Got %d pods, want the largest number", n)
	}
}

// TestNumbersThatAreNone refuses custom resources whose numbers are beyond int64, or no whole numbers. Their definitions
// may accept them.
func TestNumbersThatAreNone(t *testing.T) {
	for _, number := range []string{"9223372036854775808", "-9223372036854775809", "1e30", "2.5", "'3'", "true", "[3]", "{a: 3}"} {
		_, err := measure(t, workload.Settings{}, custom(1, "replicas"), "teams.example.com", object("example.com/v1", "Team", ", replicas: "+number))
		if !errors.Is(err, workload.ErrUnreadable) || !strings.Contains(err.Error(), "spec.groups[0].replicas is no whole number") {
			t.Errorf("%s: got %v, want %v", number, err, workload.ErrUnreadable)
		}
	}
}
