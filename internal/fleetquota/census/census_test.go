package census_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/featuregate"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/internal/fleetquota/census"
	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	"github.com/postern-dev/postern/internal/fleetquota/workload"
	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/pkg/admit"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

const now = "2026-01-01T00:00:00Z"

// count counts objects, in a cluster whose caches have these namespaces. It asks for what one object declares.
func count(tb testing.TB, settings workload.Settings, spec *quotav1alpha1.FleetAllowanceSpec, namespaces []runtime.Object, objects []runtime.Object, asked types.UID, custom ...workload.Kind) ledger.Count {
	tb.Helper()
	gates := featuregate.NewFeatureGate()
	if err := gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{podspec.PodLevelResources: podspec.QOSFeatures()[podspec.PodLevelResources]}); err != nil {
		tb.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339, now)
	if err != nil {
		tb.Fatal(err)
	}
	clock := testingclock.NewFakeClock(at)
	lists := map[schema.GroupVersionResource]string{}
	kinds := workload.New(settings, gates, clock, custom...)
	for _, kind := range kinds.All() {
		lists[kind.GroupVersionResource] = kind.Kind + "List"
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...)
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	d := admit.Deps{
		Clock: clock, Dynamic: client, CustomInformers: factory, OptionalInformers: factory, Features: gates,
		Informers: informers.NewSharedInformerFactory(fake.NewClientset(namespaces...), 0),
	}
	c, err := census.New(d, kinds)
	if err != nil {
		tb.Fatal(err)
	}
	d.Informers.Start(tb.Context().Done())
	factory.Start(tb.Context().Done())
	d.Informers.WaitForCacheSync(tb.Context().Done())
	factory.WaitForCacheSync(tb.Context().Done())
	got, ok := c.Count(spec, map[types.UID]bool{asked: true})
	if !ok {
		tb.Fatal("The caches are not synced")
	}
	return got
}

// objects returns objects with a UID that is their name. A line is: kind, name, its controller as kind/name or -, the pods
// (0 for a pod), the CPUs of a pod, and further fields.
func objects(tb testing.TB, lines ...string) []runtime.Object {
	tb.Helper()
	var out []runtime.Object
	for _, line := range lines {
		f := strings.SplitN(line, " ", 6)
		owners := ""
		if kind, name, ok := strings.Cut(f[2], "/"); ok {
			owners = fmt.Sprintf(", ownerReferences: [{apiVersion: %s, kind: %s, name: %s, uid: %s, controller: true}]", versionOf(kind), kind, name, name)
		}
		pod := fmt.Sprintf("{containers: [{name: main, resources: {requests: {cpu: %q}}}]}", f[4])
		meta, spec := "", ""
		if len(f) == 6 && strings.HasPrefix(f[5], "metadata.") {
			meta = ", " + strings.TrimPrefix(f[5], "metadata.")
		} else if len(f) == 6 {
			spec = ", " + f[5]
		}
		text := fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: shop, uid: %s%s%s}, ", versionOf(f[0]), f[0], f[1], f[1], owners, meta)
		switch f[0] {
		case "Pod":
			text += "spec: " + pod + spec + "}"
		case "Job":
			text += fmt.Sprintf("spec: {parallelism: %s, template: {spec: %s}%s}}", f[3], pod, spec)
		case "CronJob":
			text += fmt.Sprintf("spec: {jobTemplate: {spec: {parallelism: %s, template: {spec: %s}}}%s}}", f[3], pod, spec)
		default:
			text += fmt.Sprintf("spec: {replicas: %s, template: {spec: %s}%s}}", f[3], pod, spec)
		}
		u := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(text), &u.Object); err != nil {
			tb.Fatalf("%s: %v", text, err)
		}
		u.SetResourceVersion("1")
		// Integers of YAML are those of the API server's JSON.
		text2, err := u.MarshalJSON()
		if err == nil {
			err = u.UnmarshalJSON(text2)
		}
		if err != nil {
			tb.Fatalf("%s: %v", text, err)
		}
		out = append(out, u)
	}
	return out
}

func versionOf(kind string) string {
	switch kind {
	case "Pod":
		return "v1"
	case "Job", "CronJob":
		return "batch/v1"
	case "Team":
		return "example.com/v1"
	}
	return appsv1.SchemeGroupVersion.String()
}

// TestCount counts owners and dependents together.
func TestCount(t *testing.T) {
	const paused = "paused: true"
	for _, test := range []struct {
		name     string
		objects  []string
		settings workload.Settings
		cpus     string
	}{
		{"the pods of a Deployment are a part of it", []string{
			"Deployment web - 3 2", "ReplicaSet web-1 Deployment/web 3 2", "Pod web-1-a ReplicaSet/web-1 0 2",
		}, workload.Settings{}, "6"},
		{"pods that go on after a Deployment was scaled to zero", []string{
			"Deployment web - 0 2", "ReplicaSet web-1 Deployment/web 0 2",
			"Pod web-1-a ReplicaSet/web-1 0 2 metadata.deletionTimestamp: 2026-01-01T01:00:00Z, deletionGracePeriodSeconds: 3600",
			"Pod web-1-b ReplicaSet/web-1 0 2 metadata.deletionTimestamp: 2026-01-01T01:00:00Z, deletionGracePeriodSeconds: 3600",
		}, workload.Settings{}, "4"},
		{"a pod that should be gone uses nothing", []string{
			"Deployment web - 0 2", "ReplicaSet web-1 Deployment/web 0 2",
			"Pod web-1-a ReplicaSet/web-1 0 2 metadata.deletionTimestamp: 2025-12-31T22:00:00Z, deletionGracePeriodSeconds: 3600",
			"Pod alone - 0 2 metadata.deletionTimestamp: 2025-12-31T22:00:00Z, deletionGracePeriodSeconds: 3600",
		}, workload.Settings{}, "0"},
		{"a paused Deployment with a smaller template", []string{
			"Deployment web - 3 1m " + paused, "ReplicaSet web-1 Deployment/web 3 2",
		}, workload.Settings{CountSurge: true}, "6"},
		{"a ReplicaSet with a smaller template keeps its pods", []string{
			"ReplicaSet web - 2 1m", "Pod web-a ReplicaSet/web 0 2", "Pod web-b ReplicaSet/web 0 2",
		}, workload.Settings{}, "4"},
		{"the surge of a rolling update is not counted", []string{
			"Deployment web - 4 1 strategy: {rollingUpdate: {maxSurge: 1}}", "ReplicaSet web-1 Deployment/web 4 1", "ReplicaSet web-2 Deployment/web 1 1",
		}, workload.Settings{}, "4"},
		{"a large surge hides no more than the replicas", []string{
			"Deployment web - 1 1 strategy: {rollingUpdate: {maxSurge: 1000}}", "ReplicaSet web-1 Deployment/web 40 1",
		}, workload.Settings{}, "39"},
		{"runs of a CronJob that forbids them now", []string{
			"CronJob tick - 1 1 concurrencyPolicy: Forbid", "Job tick-1 CronJob/tick 1 1", "Job tick-2 CronJob/tick 1 1", "Job tick-3 CronJob/tick 1 1",
		}, workload.Settings{}, "3"},
		{"runs of a CronJob with overlap", []string{
			"CronJob tick - 1 1", "Job tick-1 CronJob/tick 1 1", "Job tick-2 CronJob/tick 1 1",
		}, workload.Settings{}, "2"},
		{"an excluded DaemonSet", []string{"DaemonSet node - 0 1", "Pod node-a DaemonSet/node 0 1"}, workload.Settings{}, "0"},
		{"a counted DaemonSet", []string{
			"DaemonSet node - 0 1", "Pod node-a DaemonSet/node 0 1", "Pod node-b DaemonSet/node 0 1",
		}, workload.Settings{DaemonSetNodes: 1}, "1"},
		{"an owner that does not exist", []string{"Pod web-a ReplicaSet/gone 0 2"}, workload.Settings{}, "2"},
		{"objects that own each other", []string{
			"ReplicaSet a ReplicaSet/b 3 1", "ReplicaSet b ReplicaSet/a 4 1", "ReplicaSet self ReplicaSet/self 5 1", "Pod a-1 ReplicaSet/a 0 1",
		}, workload.Settings{}, "13"},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec := &quotav1alpha1.FleetAllowanceSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsCPU: {}}}
			got := count(t, test.settings, spec, nil, objects(t, test.objects...), "").Total[corev1.ResourceRequestsCPU]
			if got.String() != test.cpus {
				t.Errorf("Got %s CPUs, want %s", got.String(), test.cpus)
			}
		})
	}
}

// TestCountObjects counts objects and pods under the names of a quota. The old ReplicaSets of a Deployment are free.
func TestCountObjects(t *testing.T) {
	spec := &quotav1alpha1.FleetAllowanceSpec{Hard: corev1.ResourceList{"count/replicasets.apps": {}, "count/deployments.apps": {}, "count/pods": {}, "pods": {}}}
	got := count(t, workload.Settings{}, spec, nil, objects(t, "Deployment web - 1 1", "ReplicaSet web-1 Deployment/web 0 1", "ReplicaSet web-2 Deployment/web 1 1",
		"ReplicaSet alone - 2 1", "Job batch - 3 1", "Pod batch-a Job/batch 0 1 status: {phase: Succeeded}", "Pod batch-b Job/batch 0 1",
	), "batch")
	if text := ledger.Text(got.Total); text != "count/deployments.apps=1,count/pods=6,count/replicasets.apps=1,pods=6" {
		t.Errorf("Got %s", text)
	}
	if text := ledger.Text(got.Objects["batch"].Usage); text != "count/pods=3,pods=3" {
		t.Errorf("The Job declares %s", text)
	}
}

// TestNamespaces counts the objects of namespaces that the quota selects, and of those that the cache does not have yet.
func TestNamespaces(t *testing.T) {
	spec := &quotav1alpha1.FleetAllowanceSpec{
		Hard: corev1.ResourceList{corev1.ResourceRequestsCPU: {}}, Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"fleet": "yes"}},
	}
	for _, test := range []struct {
		name       string
		namespaces []runtime.Object
		cpus       string
	}{
		{"selected", []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"fleet": "yes"}}}}, "6"},
		{"not selected", []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}, "0"},
		{"unknown", nil, "6"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := count(t, workload.Settings{}, spec, test.namespaces, objects(t, "Deployment web - 3 2"), "").Total[corev1.ResourceRequestsCPU]
			if got.String() != test.cpus {
				t.Errorf("Got %s CPUs, want %s", got.String(), test.cpus)
			}
		})
	}
}

// TestUnreadableOwner counts the pods of custom resources that cannot be measured and that were stored before the quota.
// The pods of one that can be measured are a part of it.
func TestUnreadableOwner(t *testing.T) {
	team := workload.Kind{
		GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "teams"}, Kind: "Team",
		Custom: &workload.Custom{Groups: []workload.Group{{Path: "spec.groups.*", Replicas: []string{"replicas"}, Absent: 1, Template: "template"}}},
	}
	const group = "{replicas: 3, template: {spec: {containers: [{name: main, resources: {requests: {cpu: %s}}}]}}}, "
	for _, test := range []struct{ name, groups, cpus string }{
		{"readable", fmt.Sprintf(group, "1"), "3"},
		{"no number", "{replicas: many, template: {}}", "2"},
		{"an enormous quantity", fmt.Sprintf(group, "'1e1000000000'"), "2"},
		{"many templates", strings.Repeat("{template: {}}, ", 10_001), "2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			u := &unstructured.Unstructured{}
			text := "{apiVersion: example.com/v1, kind: Team, metadata: {name: a, namespace: shop, uid: a}, spec: {groups: [" + test.groups + "]}}"
			doc, err := yaml.YAMLToJSON([]byte(text))
			if err == nil {
				err = u.UnmarshalJSON(doc)
			}
			if err != nil {
				t.Fatal(err)
			}
			all := append(objects(t, "Pod a-1 Team/a 0 2"), u)
			spec := &quotav1alpha1.FleetAllowanceSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsCPU: {}}}
			got := count(t, workload.Settings{}, spec, nil, all, "", team).Total[corev1.ResourceRequestsCPU]
			if got.String() != test.cpus {
				t.Errorf("Got %s CPUs, want %s", got.String(), test.cpus)
			}
		})
	}
}

// TestOwnerOfAnImpossibleName has owners that users can write into a pod, and that a client refuses to read. There are none.
func TestOwnerOfAnImpossibleName(t *testing.T) {
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("invalid resource name")
	})
	clock := testingclock.NewFakeClock(time.Now())
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	kinds := workload.New(workload.Settings{}, featuregate.NewFeatureGate(), clock)
	c, err := census.New(admit.Deps{
		Clock: clock, Dynamic: client, CustomInformers: factory, OptionalInformers: factory, Informers: informers.NewSharedInformerFactory(fake.NewClientset(), 0),
	}, kinds)
	if err != nil {
		t.Fatal(err)
	}
	kind := kinds.Find(schema.GroupResource{Group: "apps", Resource: "replicasets"})
	for _, name := range []string{"a/b", "a%b", "..", "", strings.Repeat("a", 1<<20)} {
		owner := &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: "u"}
		if covers, err := c.Covers(t.Context(), kind, "shop", owner); covers || err != nil {
			t.Errorf("%.10q: got covers %t, %v, want neither", name, covers, err)
		}
		if keeps, err := c.Keeps(t.Context(), kind, "shop", owner); keeps || err != nil {
			t.Errorf("%.10q: got keeps %t, %v, want neither", name, keeps, err)
		}
	}
}

// purse is an account of a request.
type purse struct {
	reads.Detached

	held int64
}

func (p *purse) Hold(_ context.Context, n int64) error {
	p.held += n
	return nil
}

// TestStored covers the lookup of an object, of which only the metadata is read.
func TestStored(t *testing.T) {
	const found = "/apis/batch/v1/namespaces/shop/jobs/a"
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata"):
			w.WriteHeader(http.StatusNotAcceptable)
		case r.URL.Path == found:
			fmt.Fprint(w, `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"a","uid":"u","resourceVersion":"7"}}`)
		case strings.Contains(r.URL.Path, "/jobs"):
			w.WriteHeader(http.StatusNotFound)
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(api.Close)
	config := &rest.Config{Host: api.URL, QPS: -1}
	config.Wrap(reads.Transport)
	client, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), 0)
	clock := testingclock.NewFakeClock(time.Now())
	c, err := census.New(admit.Deps{
		Clock: clock, Metadata: client, CustomInformers: factory, OptionalInformers: factory,
		Informers: informers.NewSharedInformerFactory(fake.NewClientset(), 0),
	}, workload.New(workload.Settings{}, featuregate.NewFeatureGate(), clock))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		group, resource, name string
		uid                   types.UID
		version               string
		failed                bool
	}{
		{"batch", "jobs", "a", "u", "7", false},
		{"batch", "jobs", "b", "", "", false},
		{"", "pods", "a", "", "", true},
		// No object has these names, and the client refuses them.
		{"", "pods", "", "", "", false},
		{"", "pods", "a/b", "", "", false},
	} {
		account, ended := &purse{}, 0
		ctx := reads.NewContext(t.Context(), reads.Detached(func() (reads.Account, func()) { return account, func() { ended++ } }))
		p := &quotav1alpha1.Pending{Group: test.group, Version: "v1", Resource: test.resource, Namespace: "shop", Name: test.name}
		uid, version, err := c.Stored(ctx, p)
		if uid != test.uid || version != test.version || apierrors.IsForbidden(err) != test.failed || err != nil != test.failed {
			t.Errorf("%s %q: got UID %q, version %q and the error %v", test.resource, test.name, uid, version, err)
		}
		if test.uid != "" && (account.held == 0 || ended != 1) {
			t.Errorf("%s %q: it held %d bytes, and gave them back %d times", test.resource, test.name, account.held, ended)
		}
	}
}
