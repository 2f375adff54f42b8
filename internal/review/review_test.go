package review_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/internal/documents"
	"github.com/postern-dev/postern/internal/review"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/dispatch"
	"github.com/postern-dev/postern/pkg/registration"
	"github.com/postern-dev/postern/pkg/router"
)

// read returns the objects of YAML documents.
func read(t *testing.T, text string) []documents.Object {
	t.Helper()
	var out []documents.Object
	for i, document := range strings.Split(text, "---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatalf("%s: %v", document, err)
		}
		out = append(out, documents.Object{Unstructured: u, Position: documents.Position{File: "f.yaml", Line: i + 1}})
	}
	return out
}

// run reviews objects with plugins.
func run(t *testing.T, plugins []*admit.Plugin, objects, state string) []review.Result {
	t.Helper()
	c, _, err := review.NewCluster(read(t, objects), read(t, state))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	watch := &review.Watch{}
	deps := admit.Deps{
		Client: client, Informers: informers.NewSharedInformerFactory(client, 0), CustomInformers: c.Informers(), OptionalInformers: c.Informers(),
		RESTMapper: c.Mapper(), Authorize: c.Authorize, Observe: watch.Observe, Namespace: "postern-system",
	}
	enabled := map[string][]byte{}
	for _, p := range plugins {
		enabled[p.Name] = nil
	}
	service, err := admit.Family{Name: "acme", Plugins: plugins}.Service(deps, enabled)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context(), deps.Informers); err != nil {
		t.Fatal(err)
	}
	registered := registration.Deployment{Namespace: "postern-system", Timeout: 10 * time.Second, FailurePolicy: admissionregistrationv1.Ignore}.Registered(service)
	d, err := dispatch.New([]router.AdmissionService{registered}, review.Options(c))
	if err != nil {
		t.Fatal(err)
	}
	r := review.Reviewer{Cluster: c, Dispatcher: d, Watch: watch, User: authenticationv1.UserInfo{Username: "alice", Groups: []string{"system:authenticated"}}, Namespace: "default"}
	results, err := r.Review(t.Context(), read(t, objects))
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// plugin returns a plugin for the creation of pods with one func.
func plugin(name string, h func(admit.Deps) admit.Handler, rules ...admit.Rule) *admit.Plugin {
	if len(rules) == 0 {
		rules = []admit.Rule{admit.On("pods", "CREATE")}
	}
	return &admit.Plugin{Name: name, Rules: rules, New: func(d admit.Deps, _ []byte) (admit.Handler, error) { return h(d), nil }}
}

func validating(name string, f func(context.Context, admit.Deps, *admit.Request) error, rules ...admit.Rule) *admit.Plugin {
	return plugin(name, func(d admit.Deps) admit.Handler {
		return admit.Handler{Validate: func(ctx context.Context, r *admit.Request) error { return f(ctx, d, r) }}
	}, rules...)
}

func denying(name string) *admit.Plugin {
	return validating(name, func(_ context.Context, _ admit.Deps, r *admit.Request) error {
		return admit.Forbidden(r, errors.New("no"))
	})
}

// looking denies a pod whose priority class has a value below 0, and also a pod named after the class.
var looking = validating("Looking", func(ctx context.Context, d admit.Deps, r *admit.Request) error {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok || pod.Spec.PriorityClassName == "" {
		return nil
	}
	class, err := d.Client.SchedulingV1().PriorityClasses().Get(ctx, pod.Spec.PriorityClassName, metav1.GetOptions{})
	if err != nil {
		return admit.Forbidden(r, err)
	}
	if class.Value < 0 || class.Name == r.Name {
		return admit.Forbidden(r, errors.New("it is too low"))
	}
	return nil
})

// guessing changes what the user may change.
var guessing = plugin("Guessing", func(d admit.Deps) admit.Handler {
	return admit.Handler{Mutate: func(ctx context.Context, r *admit.Request) error {
		use := &authorizationv1.ResourceAttributes{Verb: "use", Resource: "podsecuritypolicies", Name: "p"}
		_, err := d.Authorize(ctx, authorizationv1.SubjectAccessReviewSpec{User: r.UserInfo.Username, ResourceAttributes: use})
		return err
	}}
})

const shop = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n---\n"

const class = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 7}\n---\n"

func pod(name, class string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: shop}, spec: {priorityClassName: %s, containers: [{name: c, image: i}]}}\n---\n", name, class)
}

// short returns what a result says, without the object.
func short(r review.Result) string {
	out := string(r.Verdict)
	for _, d := range r.Denials {
		out += fmt.Sprintf("; %s: %d %s", d.Plugin, d.Code, d.Message)
	}
	for _, m := range r.Unknown {
		out += fmt.Sprintf("; %s? %s", m.Plugin, m.What)
	}
	return out
}

func TestVerdicts(t *testing.T) {
	failing := validating("Failing", func(context.Context, admit.Deps, *admit.Request) error { return errors.New("out of order") })
	const (
		removed = "{apiVersion: policy/v1beta1, kind: PodDisruptionBudget, metadata: {name: x}}\n---\n"
		preset  = "{apiVersion: settings.k8s.io/v1alpha1, kind: PodPreset, metadata: {name: a, namespace: shop}}\n---\n"
	)
	for name, tc := range map[string]struct {
		plugins        []*admit.Plugin
		objects, state string
		want           string
	}{
		"nobody denies":                             {[]*admit.Plugin{looking}, pod("a", "''"), "", "admitted"},
		"a denial":                                  {[]*admit.Plugin{looking, denying("No")}, pod("a", "''"), "", `denied; No: 403 pods "a" is forbidden: no`},
		"a class that may exist":                    {[]*admit.Plugin{looking}, pod("a", "high"), "", "unknown; Looking? PriorityClass high"},
		"a class in the state":                      {[]*admit.Plugin{looking}, pod("a", "high"), class, "admitted"},
		"a class that the state would have":         {[]*admit.Plugin{looking}, pod("a", "low"), class, `denied; Looking: 403 pods "a" is forbidden: priorityclasses.scheduling.k8s.io "low" not found`},
		"a class before the pod":                    {[]*admit.Plugin{looking}, class + pod("a", "high"), "", "admitted | admitted"},
		"a class after the pod":                     {[]*admit.Plugin{looking}, pod("a", "high") + class, "", `denied; Looking: 403 pods "a" is forbidden: priorityclasses.scheduling.k8s.io "high" not found | admitted`},
		"a denial because of what may exist":        {[]*admit.Plugin{looking}, pod("high", "high"), "", `unknown; Looking: 403 pods "high" is forbidden: it is too low; Looking? PriorityClass high`},
		"a denial beside what may exist":            {[]*admit.Plugin{looking, denying("No")}, pod("a", "high"), "", `denied; No: 403 pods "a" is forbidden: no; Looking? PriorityClass high`},
		"a plugin that cannot decide":               {[]*admit.Plugin{failing, denying("No")}, pod("a", "''"), "", "unknown; Failing? out of order"},
		"a version that Kubernetes removed":         {[]*admit.Plugin{looking}, removed, "", "denied; : 404 Kubernetes 1.25 removed policy/v1beta1 of this kind"},
		"a legacy preset":                           {[]*admit.Plugin{looking}, preset, "", "denied; : 404 Kubernetes 1.20 removed settings.k8s.io/v1alpha1 of this kind"},
		"a legacy preset where the state has one":   {[]*admit.Plugin{looking}, preset, strings.ReplaceAll(preset, "name: a", "name: b"), "admitted"},
		"an object that does not decode":            {[]*admit.Plugin{looking}, "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: 5}}", "", "denied; : 400 the object: decoding a v1 Pod: json: cannot unmarshal number into Go struct field PodSpec.spec.containers of type []v1.Container"},
		"a denied object again":                     {[]*admit.Plugin{denying("No")}, pod("a", "''") + pod("a", "''"), "", `denied; No: 403 pods "a" is forbidden: no | denied; No: 403 pods "a" is forbidden: no`},
		"an object twice":                           {[]*admit.Plugin{looking}, pod("a", "''") + pod("a", "''"), "", "admitted | denied; : 409 an object before it has the same kind and name"},
		"an object of the state":                    {[]*admit.Plugin{denying("No")}, pod("a", "''"), pod("a", "''") + shop, "admitted"},
		"no name":                                   {[]*admit.Plugin{looking}, pod("''", "''"), "", "denied; : 422 metadata.name: Required value: name or generateName is required"},
		"a namespace that the state would have":     {[]*admit.Plugin{looking}, pod("a", "''"), strings.ReplaceAll(shop, "shop", "other"), `denied; : 404 namespaces "shop" not found`},
		"an object without namespaces":              {[]*admit.Plugin{looking}, class, shop, "admitted"},
		"a version that no definition serves":       {[]*admit.Plugin{looking}, strings.ReplaceAll(gateway, "example.com/v1", "example.com/v2"), crd, `denied; : 404 no matches for kind "Gateway" in version "example.com/v2"`},
		"a definition of a newer version":           {[]*admit.Plugin{looking}, strings.ReplaceAll(crd, "name: v1}", "name: v2}") + strings.ReplaceAll(gateway, "example.com/v1", "example.com/v2"), crd, "admitted | admitted"},
		"a review without a name":                   {[]*admit.Plugin{looking}, "{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview, spec: {user: a}}", "", "admitted"},
		"a custom kind whose name ends in Review":   {[]*admit.Plugin{looking}, "{apiVersion: example.com/v1, kind: CodeReview, metadata: {namespace: shop}}", "", "denied; : 422 metadata.name: Required value: name or generateName is required"},
		"a namespace after its pod":                 {[]*admit.Plugin{looking}, pod("a", "''") + shop, "", `denied; : 404 namespaces "shop" not found | admitted`},
		"a class in a namespace":                    {[]*admit.Plugin{looking}, strings.ReplaceAll(class, "name: high", "name: high, namespace: x") + pod("a", "high"), "", "admitted | admitted"},
		"a denial after a change that is not known": {[]*admit.Plugin{guessing, denying("No")}, pod("a", "''"), "", `unknown; No: 403 pods "a" is forbidden: no; Guessing? whether alice may use podsecuritypolicies "p"`},
		"a plugin that needs more than objects":     {[]*admit.Plugin{validating("FleetQuota", func(context.Context, admit.Deps, *admit.Request) error { return nil })}, pod("a", "''"), "", "unknown; FleetQuota? what the hub allows, and what the clusters use"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range run(t, tc.plugins, tc.objects, tc.state) {
				got = append(got, short(r))
			}
			if got := strings.Join(got, " | "); got != tc.want {
				t.Errorf("Got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// workloads has one of each kind of which controllers make pods.
const workloads = `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}}}
---
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: rs, namespace: shop}, spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}}}
---
{apiVersion: v1, kind: ReplicationController, metadata: {name: rc}, spec: {template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}}}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {serviceName: db, ordinals: {start: 3}, selector: {matchLabels: {app: db}}, volumeClaimTemplates: [{metadata: {name: data}}], template: {metadata: {labels: {app: db}}, spec: {volumes: [{name: data, emptyDir: {}}, {name: tmp, emptyDir: {}}], containers: [{name: c, image: i}]}}}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent}, spec: {selector: {matchLabels: {app: agent}}, template: {metadata: {labels: {app: agent}}, spec: {hostNetwork: true, tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 5}], containers: [{name: c, image: i}]}}}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: once}, spec: {completionMode: Indexed, completions: 2, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
---
{apiVersion: batch/v1, kind: CronJob, metadata: {name: nightly}, spec: {schedule: '0 3 * * *', jobTemplate: {metadata: {labels: {from: template}}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}}
---
{apiVersion: v1, kind: PodTemplate, metadata: {name: kept}, template: {metadata: {labels: {app: kept}}, spec: {containers: [{name: c, image: i}]}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}
`

// TestWhatControllersMake compares the requests of the controllers.
func TestWhatControllersMake(t *testing.T) {
	var mu sync.Mutex
	var got []string
	recorder := validating("Recorder", func(_ context.Context, _ admit.Deps, r *admit.Request) error {
		m, err := meta.Accessor(r.Object)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %s/%s by %s", r.Kind.Kind, r.Namespace, m.GetName(), strings.TrimPrefix(r.UserInfo.Username, "system:serviceaccount:kube-system:"))
		for _, owner := range m.GetOwnerReferences() {
			line += fmt.Sprintf(", of %s %s %t", owner.Kind, owner.Name, *owner.Controller)
		}
		for _, key := range slices.Sorted(maps.Keys(m.GetLabels())) {
			value := m.GetLabels()[key]
			if strings.HasSuffix(key, "controller-uid") {
				value = fmt.Sprint(value == string(m.GetOwnerReferences()[0].UID), len(value))
			}
			line += ", " + key + "=" + value
		}
		if pod, ok := r.Object.(*corev1.Pod); ok {
			for _, v := range pod.Spec.Volumes {
				line += ", volume " + v.Name
				if v.PersistentVolumeClaim != nil {
					line += " of " + v.PersistentVolumeClaim.ClaimName
				}
			}
			for _, tol := range pod.Spec.Tolerations {
				line += fmt.Sprintf(", tolerates %s:%s %v", strings.TrimPrefix(tol.Key, "node.kubernetes.io/"), tol.Effect, tol.TolerationSeconds)
			}
			for _, e := range pod.Spec.Containers[0].Env {
				line += ", env " + e.Name
			}
			if pod.Spec.Hostname != "" {
				line += ", host " + pod.Spec.Hostname + " of " + pod.Spec.Subdomain
			}
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, line)
		return nil
	}, admit.On("pods", "CREATE"), admit.On("replicasets", "CREATE").Of("apps"), admit.On("jobs", "CREATE").Of("batch"))
	results := run(t, []*admit.Plugin{recorder}, workloads, "")
	slices.Sort(got)
	want := []string{
		"Job default/nightly-xxxxxxxx by cronjob-controller, of CronJob nightly true, from=template",
		"Job default/once by alice",
		"Pod default/agent-xxxxx by daemon-set-controller, of DaemonSet agent true, app=agent, controller-revision-hash=xxxxxxxxxx, pod-template-generation=1, tolerates not-ready:NoExecute <nil>, tolerates unreachable:NoExecute <nil>, tolerates disk-pressure:NoSchedule <nil>, tolerates memory-pressure:NoSchedule <nil>, tolerates pid-pressure:NoSchedule <nil>, tolerates unschedulable:NoSchedule <nil>, tolerates network-unavailable:NoSchedule <nil>",
		"Pod default/db-3 by statefulset-controller, of StatefulSet db true, app=db, apps.kubernetes.io/pod-index=3, controller-revision-hash=db-xxxxxxxxxx, statefulset.kubernetes.io/pod-name=db-3, volume data of data-db-3, volume tmp, host db-3 of db",
		"Pod default/kept-xxxxx by alice, app=kept",
		"Pod default/nightly-xxxxxxxx-xxxxx by job-controller, of Job nightly-xxxxxxxx true, batch.kubernetes.io/controller-uid=true 36, batch.kubernetes.io/job-name=nightly-xxxxxxxx, controller-uid=true 36, job-name=nightly-xxxxxxxx",
		"Pod default/once-0-xxxxx by job-controller, of Job once true, batch.kubernetes.io/controller-uid=true 36, batch.kubernetes.io/job-completion-index=0, batch.kubernetes.io/job-name=once, controller-uid=true 36, job-name=once, env JOB_COMPLETION_INDEX, host once-0 of ",
		"Pod default/rc-xxxxx by replication-controller, of ReplicationController rc true, app=web",
		"Pod default/web-xxxxxxxxxx-xxxxx by replicaset-controller, of ReplicaSet web-xxxxxxxxxx true, app=web, pod-template-hash=xxxxxxxxxx",
		"Pod shop/rs-xxxxx by replicaset-controller, of ReplicaSet rs true, app=web",
		"ReplicaSet default/web-xxxxxxxxxx by deployment-controller, of Deployment web true, app=web, pod-template-hash=xxxxxxxxxx",
		"ReplicaSet shop/rs by alice",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("The requests differ (-want +got):\n%s", diff)
	}
	var titles []string
	for _, r := range results {
		titles = append(titles, strings.Join([]string{r.Kind, r.Namespace, r.Name, r.Of, r.Path, fmt.Sprint(r.Line)}, " "))
	}
	if diff := cmp.Diff([]string{
		"Deployment default web   1", "Pod default web-xxxxxxxxxx-xxxxx Deployment default/web spec.template 1",
		"ReplicaSet shop rs   2", "Pod shop rs-xxxxx ReplicaSet shop/rs spec.template 2",
		"ReplicationController default rc   3", "Pod default rc-xxxxx ReplicationController default/rc spec.template 3",
		"StatefulSet default db   4", "PersistentVolumeClaim default data-db-3 StatefulSet default/db spec.volumeClaimTemplates[0] 4", "Pod default db-3 StatefulSet default/db spec.template 4",
		"DaemonSet default agent   5", "Pod default agent-xxxxx DaemonSet default/agent spec.template 5",
		"Job default once   6", "Pod default once-0-xxxxx Job default/once spec.template 6",
		"CronJob default nightly   7", "Pod default nightly-xxxxxxxx-xxxxx CronJob default/nightly spec.jobTemplate.spec.template 7",
		"PodTemplate default kept   8", "Pod default kept-xxxxx PodTemplate default/kept template 8",
		"ConfigMap default settings   9",
	}, titles); diff != "" {
		t.Errorf("The results differ (-want +got):\n%s", diff)
	}
}

// TestPodsOfJobs has what the author of a Job sets in place of the controller.
func TestPodsOfJobs(t *testing.T) {
	var got string
	recorder := validating("Recorder", func(_ context.Context, _ admit.Deps, r *admit.Request) error {
		if pod, ok := r.Object.(*corev1.Pod); ok {
			got = fmt.Sprint(pod.Labels, pod.Spec.Containers[0].Env)
		}
		return nil
	})
	run(t, []*admit.Plugin{recorder}, "{apiVersion: batch/v1, kind: Job, metadata: {name: own}, spec: {manualSelector: true, completionMode: Indexed, completions: 1, selector: {matchLabels: {a: b}}, "+
		"template: {metadata: {labels: {a: b, job-name: mine}}, spec: {restartPolicy: Never, containers: [{name: c, image: i, env: [{name: JOB_COMPLETION_INDEX, value: x}]}]}}}}", "")
	if want := "map[a:b batch.kubernetes.io/job-completion-index:0 job-name:mine] [{JOB_COMPLETION_INDEX x nil}]"; got != want {
		t.Errorf("Got %s, want %s", got, want)
	}
}

// TestPodsAreReviewedLast has a Deployment before the class that its pods need: its controller tries again.
func TestPodsAreReviewedLast(t *testing.T) {
	deployment := "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {priorityClassName: high, containers: [{name: c, image: i}]}}}}\n---\n"
	results := run(t, []*admit.Plugin{looking}, deployment+class, "")
	for _, r := range results {
		if r.Verdict != review.Admitted {
			t.Errorf("Got %s", short(r))
		}
	}
	if len(results) != 3 || results[1].Kind != "Pod" {
		t.Errorf("Got %+v, want the Deployment, its pod and the class", results)
	}
}

// TestDeniedWorkloads has a Deployment and a ReplicaSet that are denied: no controller makes their pods.
func TestDeniedWorkloads(t *testing.T) {
	no := validating("No", func(_ context.Context, _ admit.Deps, r *admit.Request) error {
		return admit.Forbidden(r, errors.New("no"))
	},
		admit.On("replicasets", "CREATE").Of("apps"), admit.On("jobs", "CREATE").Of("batch"))
	kinds := map[string]int{}
	for _, r := range run(t, []*admit.Plugin{no}, workloads, "") {
		kinds[r.Kind]++
	}
	if diff := cmp.Diff(map[string]int{
		"Deployment": 1, "ReplicaSet": 2, "ReplicationController": 1, "StatefulSet": 1, "DaemonSet": 1, "CronJob": 1, "Job": 2, "PodTemplate": 1, "ConfigMap": 1,
		"PersistentVolumeClaim": 1, "Pod": 4,
	}, kinds); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestUpdates reviews objects of the state, which are updated as by kubectl apply.
func TestUpdates(t *testing.T) {
	const old = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: shop, uid: u1, creationTimestamp: '2026-01-01T00:00:00Z', annotations: {a: b}}, spec: {hard: {pods: 5, secrets: 1}}, status: {hard: {pods: 5}, used: {pods: 5}}}\n---\n" + shop
	const custom = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: shop}, spec: {a: 1}}\n---\n"
	var got []string
	recorder := validating("Recorder", func(_ context.Context, _ admit.Deps, r *admit.Request) error {
		got = append(got, fmt.Sprintf("%s %s %s: %s", r.Operation, r.Kind.Kind, r.Name, r.AdmissionRequest.Object.Raw), string(r.AdmissionRequest.OldObject.Raw))
		return nil
	}, admit.On("resourcequotas", "CREATE", "UPDATE"), admit.On("widgets", "CREATE", "UPDATE").Of("example.com"))
	results := run(t, []*admit.Plugin{recorder}, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: shop, uid: u2, labels: {c: d}}, spec: {hard: {pods: 6}}, status: {used: {pods: 0}}}\n---\n"+
		strings.ReplaceAll(custom, "a: 1", "b: 2"), old+custom)
	want := []string{
		`UPDATE ResourceQuota q: {"kind":"ResourceQuota","apiVersion":"v1","metadata":{"name":"q","namespace":"shop","uid":"u1","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"c":"d"},"annotations":{"a":"b"}},"spec":{"hard":{"pods":"6","secrets":"1"}},"status":{"hard":{"pods":"5","secrets":"1"},"used":{"pods":"5","secrets":"0"}}}`,
		`{"kind":"ResourceQuota","apiVersion":"v1","metadata":{"name":"q","namespace":"shop","uid":"u1","creationTimestamp":"2026-01-01T00:00:00Z","annotations":{"a":"b"}},"spec":{"hard":{"pods":"5","secrets":"1"}},"status":{"hard":{"pods":"5","secrets":"1"},"used":{"pods":"5","secrets":"0"}}}`,
		`UPDATE Widget w: {"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"shop","uid":"-"},"spec":{"a":1,"b":2}}`,
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"shop","uid":"-"},"spec":{"a":1}}`,
	}
	for i := range got {
		got[i] = regexp.MustCompile(`"uid":"[-0-9a-f]{36}"`).ReplaceAllString(got[i], `"uid":"-"`)
	}
	if diff := cmp.Diff(want, got); diff != "" || len(results) != 2 {
		t.Errorf("%d results (-want +got):\n%s", len(results), diff)
	}
}

// TestGeneratedNames has names as long as those of an API server.
func TestGeneratedNames(t *testing.T) {
	long := strings.Repeat("a", 70)
	results := run(t, []*admit.Plugin{looking}, "{apiVersion: batch/v1, kind: Job, metadata: {generateName: "+long+", namespace: shop}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}", "")
	want := strings.Repeat("a", 58) + "xxxxx"
	if len(results) != 2 || results[0].Name != want || results[1].Name != want {
		t.Errorf("Got %+v", results)
	}
}

// TestBackendThatDoesNotAnswer admits without the backend.
func TestBackendThatDoesNotAnswer(t *testing.T) {
	open := validating("ImagePolicyWebhook", func(_ context.Context, _ admit.Deps, r *admit.Request) error {
		r.Audit("failed-open", "true")
		return nil
	})
	if got := short(run(t, []*admit.Plugin{open}, pod("a", "''"), "")[0]); got != "unknown; ImagePolicyWebhook? the answer of its backend" {
		t.Errorf("Got %s", got)
	}
}

// TestChangesAreStored has a plugin that changes a class, and a pod that needs the changed one.
func TestChangesAreStored(t *testing.T) {
	lower := plugin("Lower", func(admit.Deps) admit.Handler {
		return admit.Handler{Mutate: func(_ context.Context, r *admit.Request) error {
			if m, ok := r.Object.(metav1.Object); ok {
				m.SetAnnotations(map[string]string{"seen": "yes"})
			}
			return nil
		}}
	}, admit.On("priorityclasses", "CREATE").Of("scheduling.k8s.io"))
	annotated := validating("Annotated", func(ctx context.Context, d admit.Deps, r *admit.Request) error {
		class, err := d.Client.SchedulingV1().PriorityClasses().Get(ctx, "high", metav1.GetOptions{})
		if err != nil || class.Annotations["seen"] != "yes" {
			return fmt.Errorf("got %v, %w", class, err)
		}
		r.Warn("the class is seen")
		return nil
	})
	results := run(t, []*admit.Plugin{lower, annotated}, class+pod("a", "high"), "")
	if !results[0].Changed || results[1].Changed || short(results[1]) != "admitted" || !slices.Equal(results[1].Warnings, []string{"the class is seen"}) {
		t.Errorf("Got %+v", results)
	}
}

const crd = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: gateways.example.com}, spec: {group: example.com, scope: Namespaced, names: {kind: Gateway, plural: gateways}, versions: [{name: v1}]}}\n---\n"

const gateway = "{apiVersion: example.com/v1, kind: Gateway, metadata: {name: a, namespace: shop}}\n---\n"

func TestMistakes(t *testing.T) {
	for name, tc := range map[string]struct{ objects, state, want, notes string }{
		"a kind that is defined later":      {gateway + crd, "", "", ""},
		"a kind that the state defines":     {gateway, crd, "", ""},
		"a definition in both":              {crd, crd, "", ""},
		"a kind with a plural of its own":   {gateway, "", "", "Gateway of example.com/v1 has no CustomResourceDefinition here: taken for the namespaced resource gateways"},
		"a definition that Kubernetes had":  {strings.ReplaceAll(crd, "extensions.k8s.io/v1", "extensions.k8s.io/v1beta1"), "", "", ""},
		"a kind that is guessed":            {strings.ReplaceAll(gateway, "Gateway", "Widget"), "", "", "Widget of example.com/v1 has no CustomResourceDefinition here: taken for the namespaced resource widgets"},
		"a kind that Kubernetes never had":  {"{apiVersion: apps/v7, kind: Deployment, metadata: {name: a}}", "", "f.yaml:1: Deployment a: there is no such kind in apps/v7", ""},
		"a kind of a subresource":           {"{apiVersion: policy/v1, kind: Eviction, metadata: {name: a}}", "", "f.yaml:1: Eviction a: it is sent to pods/eviction of an object, and not reviewed", ""},
		"a wrong definition":                {strings.ReplaceAll(crd, "scope: Namespaced", "scope: Space"), "", `f.yaml:1: CustomResourceDefinition gateways.example.com: spec.scope "Space" is neither Cluster nor Namespaced`, ""},
		"a removed definition in the state": {"", strings.ReplaceAll(crd, "extensions.k8s.io/v1", "extensions.k8s.io/v1beta1"), "f.yaml:1: CustomResourceDefinition gateways.example.com: Kubernetes 1.22 removed apiextensions.k8s.io/v1beta1 of this kind", ""},
		"a removed version in the state":    {"", "{apiVersion: policy/v1beta1, kind: PodSecurityPolicy, metadata: {name: a}}", "f.yaml:1: PodSecurityPolicy a: Kubernetes 1.25 removed policy/v1beta1 of this kind", ""},
		"no name in the state":              {"", "{apiVersion: v1, kind: Namespace}", "f.yaml:1: Namespace : it has no metadata.name", ""},
		"no namespace in the state":         {"", "{apiVersion: v1, kind: Pod, metadata: {name: a}}", "f.yaml:1: Pod a: it has no metadata.namespace", ""},
		"a wrong type in the state":         {"", "{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {a: 1}}}", "f.yaml:1: Namespace a: ", ""},
		"a kind that is guessed by another": {"{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}\n---\n" + strings.ReplaceAll(gateway, "Gateway", "Widget"), "", "", "Widget of example.com/v1 has no CustomResourceDefinition here: taken for the namespaced resource widgets"},
		"two mistakes":                      {"{apiVersion: apps/v7, kind: Deployment, metadata: {name: a}}\n---\n{apiVersion: policy/v1, kind: Eviction, metadata: {name: a}}", "", "f.yaml:2: Eviction a: it is sent to pods/eviction of an object, and not reviewed\nf.yaml:1: Deployment a: ", ""},
		"a removed version in the manifest": {"{apiVersion: policy/v1beta1, kind: PodSecurityPolicy, metadata: {name: a}}", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, notes, err := review.NewCluster(read(t, tc.objects), read(t, tc.state))
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("Got the error %v, want %q", err, tc.want)
			}
			if got := strings.Join(notes, "; "); got != tc.notes {
				t.Errorf("Got the notes %q, want %q", got, tc.notes)
			}
		})
	}
}

func TestWriteTable(t *testing.T) {
	var out strings.Builder
	if err := review.WriteTable(&out, []review.Result{
		{Verdict: review.Admitted, Kind: "Namespace", Name: "shop", File: "a.yaml", Line: 1, Warnings: []string{"careful"}},
		{Verdict: review.Denied, Kind: "Pod", Namespace: "shop", Name: "web-x", File: "a.yaml", Line: 4, Path: "spec.template", Of: "Deployment shop/web", Changed: true, Denials: []review.Denial{{"No", 403, "Forbidden", "one\ntwo"}}},
		{Verdict: review.Unknown, Kind: "Pod", Namespace: "shop", Name: "a", File: "b.yaml", Line: 7, Unknown: []review.Missing{{"Priority", "PriorityClass high"}, {"", "the version"}}, Denials: []review.Denial{{"", 404, "NotFound", "gone"}}},
	}); err != nil {
		t.Fatal(err)
	}
	want := `admitted           Namespace shop                                            a.yaml:1
    warning: careful
denied, changed    Pod shop/web-x from spec.template of Deployment shop/web  a.yaml:4
    No: one
      two
unknown            Pod shop/a                                                b.yaml:7
    API server: gone
    Priority: not known: PriorityClass high
    not known: the version
2 objects, 1 object that controllers make: 1 admitted, 1 denied, 1 unknown.
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
