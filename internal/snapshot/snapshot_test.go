package snapshot_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/internal/resources"
	"github.com/postern-dev/postern/internal/snapshot"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return u
}

// newCluster returns a cluster with objects.
func newCluster(t *testing.T, texts ...string) *snapshot.Cluster {
	t.Helper()
	defined := resources.Definitions{}
	if plural := defined.Guess(widgets.GroupVersion().WithKind("Widget"), true); plural != widgets.Resource {
		t.Fatalf("Guessed %s", plural)
	}
	c := snapshot.New(defined)
	for _, text := range texts {
		if err := add(t, c, text); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func add(t *testing.T, c *snapshot.Cluster, text string) error {
	t.Helper()
	u := object(t, text)
	raw, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	uid, err := c.Add(u.GroupVersionKind(), raw)
	if err == nil && uid == "" {
		t.Errorf("%s has no uid.", text)
	}
	return err
}

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

const (
	widget = "{apiVersion: example.com/v1, kind: Widget, metadata: {namespace: shop, name: a, labels: {app: x}}, spec: {size: 3}}"
	high   = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 7}"
)

// watched returns a context that collects what is missing.
func watched(t *testing.T, into *[]string) context.Context {
	t.Helper()
	return snapshot.WithReport(t.Context(), func(what string) { *into = append(*into, what) })
}

func client(t *testing.T, c *snapshot.Cluster) *kubernetes.Clientset {
	t.Helper()
	out, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestGet(t *testing.T) {
	c := newCluster(t, high)
	classes := client(t, c).SchedulingV1().PriorityClasses()
	var missing []string
	ctx := watched(t, &missing)
	if got, err := classes.Get(ctx, "high", metav1.GetOptions{}); err != nil || got.Value != 7 || len(missing) > 0 {
		t.Errorf("An object that is there: got %+v, %v, missing %q", got, err, missing)
	}
	if got, err := classes.Get(ctx, "low", metav1.GetOptions{}); err != nil || got.Name != "low" || !slices.Equal(missing, []string{"PriorityClass low"}) {
		t.Errorf("An object that may exist: got %+v, %v, missing %q", got, err, missing)
	}
	if err := c.Expect(object(t, strings.ReplaceAll(high, "high", "later"))); err != nil {
		t.Fatal(err)
	}
	if got, err := classes.Get(ctx, "later", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("An object that is added later: got %+v, %v, want a NotFound error", got, err)
	}
	if err := add(t, c, strings.ReplaceAll(high, "high", "later")); err != nil {
		t.Fatal(err)
	}
	if _, err := classes.Get(ctx, "later", metav1.GetOptions{}); err != nil {
		t.Errorf("An object that was added: got %v", err)
	}
	if err := c.Complete(object(t, high).GroupVersionKind()); err != nil {
		t.Fatal(err)
	}
	if got, err := classes.Get(ctx, "low", metav1.GetOptions{}); !apierrors.IsNotFound(err) || len(missing) != 1 {
		t.Errorf("An object of a complete kind: got %+v, %v, missing %q, want a NotFound error", got, err, missing)
	}
}

func TestGetUntyped(t *testing.T) {
	c := newCluster(t, widget)
	dyn, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	got, err := dyn.Resource(widgets).Namespace("shop").Get(t.Context(), "a", metav1.GetOptions{})
	if size, _, _ := unstructured.NestedInt64(got.Object, "spec", "size"); err != nil || size != 3 {
		t.Errorf("Got %v, %v", got, err)
	}
	var missing []string
	if got, err = dyn.Resource(widgets).Namespace("shop").Get(watched(t, &missing), "b", metav1.GetOptions{}); err != nil || got.GetKind() != "Widget" || !slices.Equal(missing, []string{"Widget shop/b"}) {
		t.Errorf("An object that may exist: got %v, %v, missing %q", got, err, missing)
	}
	meta, err := metadata.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	part, err := meta.Resource(widgets).Namespace("shop").Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || part.Labels["app"] != "x" {
		t.Errorf("Its metadata: got %+v, %v", part, err)
	}
	list, err := meta.Resource(widgets).List(t.Context(), metav1.ListOptions{LabelSelector: "app=x"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "a" {
		t.Errorf("A list of metadata: got %+v, %v", list, err)
	}
}

func TestList(t *testing.T) {
	pod := func(namespace, name, node string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {namespace: " + namespace + ", name: " + name + ", labels: {app: " + name + "}}, spec: {nodeName: " + node + "}}"
	}
	c := newCluster(t, pod("shop", "b", "n1"), pod("shop", "a", "n2"), pod("other", "c", "n1"))
	for _, tc := range []struct {
		namespace string
		options   metav1.ListOptions
		want      string
	}{
		{"", metav1.ListOptions{}, "c a b"},
		{"shop", metav1.ListOptions{}, "a b"},
		{"shop", metav1.ListOptions{LabelSelector: "app=b"}, "b"},
		{"", metav1.ListOptions{FieldSelector: "spec.nodeName=n1"}, "c b"},
		{"empty", metav1.ListOptions{Limit: 500}, ""},
		{"", metav1.ListOptions{Limit: 2}, "c a"},
		{"", metav1.ListOptions{Limit: 2, Continue: "2"}, "b"},
	} {
		list, err := client(t, c).CoreV1().Pods(tc.namespace).List(t.Context(), tc.options)
		if err != nil {
			t.Fatalf("%+v: %v", tc, err)
		}
		var names []string
		for _, p := range list.Items {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); got != tc.want {
			t.Errorf("%q, %+v: got %q, want %q", tc.namespace, tc.options, got, tc.want)
		}
	}
	if got := c.Assumed(); !slices.Equal(got, []string{"pods"}) {
		t.Errorf("Assumed %q, want the pods, of which others may exist", got)
	}
}

func TestNothingIsWritten(t *testing.T) {
	c := client(t, newCluster(t, high))
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "namespaces") {
		t.Errorf("A creation: got %v", err)
	}
	if err := c.SchedulingV1().PriorityClasses().Delete(t.Context(), "high", metav1.DeleteOptions{}); err == nil {
		t.Error("A deletion succeeded.")
	}
	if v, err := c.Discovery().ServerVersion(); err != nil || v.Minor != "37" {
		t.Errorf("The version: got %v, %v", v, err)
	}
}

func TestInformersSeeWhatIsAdded(t *testing.T) {
	c := newCluster(t, high, widget)
	typed := informers.NewSharedInformerFactory(client(t, c), 0)
	classes := typed.Scheduling().V1().PriorityClasses()
	hasSynced := classes.Informer().HasSynced
	custom := c.Informers().ForResource(widgets)
	if err := custom.Informer().SetTransform(func(obj any) (any, error) {
		u, _ := obj.(*unstructured.Unstructured)
		u.SetLabels(map[string]string{"seen": "yes"})
		return u, nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context(), typed); err != nil {
		t.Fatal(err)
	}
	if !hasSynced() || !custom.Informer().HasSynced() {
		t.Error("An informer has not synced.")
	}
	for _, text := range []string{strings.ReplaceAll(high, "high", "low"), strings.ReplaceAll(widget, "name: a", "name: b")} {
		if err := add(t, c, text); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"high", "low", "system-node-critical"} {
		if got, err := classes.Lister().Get(name); err != nil {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	for _, name := range []string{"a", "b"} {
		got, err := custom.Lister().ByNamespace("shop").Get(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if u, ok := got.(*unstructured.Unstructured); !ok || u.GetLabels()["seen"] != "yes" {
			t.Errorf("%s was not transformed: %v", name, got)
		}
	}
}

func TestWhatControllersAdd(t *testing.T) {
	c := newCluster(t,
		"{apiVersion: v1, kind: Namespace, metadata: {name: shop}}",
		"{apiVersion: v1, kind: ResourceQuota, metadata: {namespace: shop, name: q}, spec: {hard: {pods: '3'}}}")
	core := client(t, c).CoreV1()
	var missing []string
	if ns, err := core.Namespaces().Get(watched(t, &missing), "shop", metav1.GetOptions{}); err != nil || ns.Labels[corev1.LabelMetadataName] != "shop" || ns.Status.Phase != corev1.NamespaceActive {
		t.Errorf("The namespace: got %+v, %v", ns, err)
	}
	if _, err := core.ServiceAccounts("shop").Get(watched(t, &missing), "default", metav1.GetOptions{}); err != nil || len(missing) > 0 {
		t.Errorf("Its service account: got %v, missing %q", err, missing)
	}
	if got := c.AssumedAccounts(); !slices.Equal(got, []string{"shop"}) {
		t.Errorf("Assumed the accounts of %q", got)
	}
	if err := c.Complete(corev1.SchemeGroupVersion.WithKind("ServiceAccount")); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context(), informers.NewSharedInformerFactory(client(t, c), 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := core.ServiceAccounts("shop").Get(t.Context(), "default", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Its service account, if all are known: got %v", err)
	}
	if err := c.MakeNamespace("new"); err != nil {
		t.Fatal(err)
	}
	if _, err := core.ServiceAccounts("new").Get(watched(t, &missing), "default", metav1.GetOptions{}); err != nil || len(missing) > 0 {
		t.Errorf("The service account of a new namespace: got %v, missing %q", err, missing)
	}
	if q, err := core.ResourceQuotas("shop").Get(t.Context(), "q", metav1.GetOptions{}); err != nil || q.Status.Hard.Pods().Value() != 3 || !q.Status.Used.Pods().IsZero() {
		t.Errorf("The quota: got %+v, %v", q, err)
	}
}

func TestAssumeNamespace(t *testing.T) {
	c := newCluster(t)
	if err := c.Expect(object(t, "{apiVersion: v1, kind: Namespace, metadata: {name: later}}")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"shop", "default", "later", "shop", ""} {
		if err := c.AssumeNamespace(name); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.AssumedNamespaces(); !slices.Equal(got, []string{"default", "shop"}) {
		t.Errorf("Assumed the namespaces %q, want those without an object in a file", got)
	}
	if c.LacksNamespace("shop") || !c.LacksNamespace("later") || c.LacksNamespace("other") {
		t.Error("Want that only the namespace that is added later is known to be missing.")
	}
	if _, err := c.NamespaceLabels("later"); !apierrors.IsNotFound(err) {
		t.Errorf("A namespace that is added later: got %v", err)
	}
	if got, err := c.NamespaceLabels("shop"); err != nil || got[corev1.LabelMetadataName] != "shop" {
		t.Errorf("Got %v, %v", got, err)
	}
}

func TestAuthorize(t *testing.T) {
	use := &authorizationv1.ResourceAttributes{Verb: "use", Group: "policy.postern.dev", Resource: "podsecuritypolicies", Name: "restricted", Namespace: "shop"}
	finalizers := func(resource string) *authorizationv1.ResourceAttributes {
		return &authorizationv1.ResourceAttributes{Verb: "update", Group: "apps", Resource: resource, Subresource: "finalizers", Name: "web", Namespace: "shop"}
	}
	const controller = "system:serviceaccount:kube-system:deployment-controller"
	for name, tc := range map[string]struct {
		spec authorizationv1.SubjectAccessReviewSpec
		want string
	}{
		"a user":                            {authorizationv1.SubjectAccessReviewSpec{User: "alice", ResourceAttributes: use}, `whether alice may use podsecuritypolicies.policy.postern.dev "restricted" in the namespace shop`},
		"an administrator":                  {authorizationv1.SubjectAccessReviewSpec{User: "root", Groups: []string{"system:masters"}, ResourceAttributes: use}, ""},
		"a controller and its own resource": {authorizationv1.SubjectAccessReviewSpec{User: controller, ResourceAttributes: finalizers("deployments")}, ""},
		"a controller and another resource": {authorizationv1.SubjectAccessReviewSpec{User: controller, ResourceAttributes: finalizers("statefulsets")}, "no"},
		"no resource":                       {authorizationv1.SubjectAccessReviewSpec{User: "alice", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}}, "whether alice may get /metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			var missing []string
			d, err := newCluster(t).Authorize(watched(t, &missing), tc.spec)
			if !d.Allowed {
				missing = append(missing, "no")
			}
			if got := strings.Join(missing, "; "); err != nil || got != tc.want {
				t.Errorf("Got %+v, %v, missing %q, want %q", d, err, got, tc.want)
			}
		})
	}
}

// TestStoredObjects adds objects as an API server stores them.
func TestStoredObjects(t *testing.T) {
	c := newCluster(t,
		"{apiVersion: v1, kind: LimitRange, metadata: {namespace: shop, name: a}, spec: {limits: [{type: Container, max: {cpu: 1}}], unknown: 1}}",
		"{apiVersion: v1, kind: ResourceQuota, metadata: {namespace: shop, name: q}, spec: {hard: {pods: 0}}}",
		"{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: r, namespace: shop}, handler: x}")
	core := client(t, c).CoreV1()
	if lr, err := core.LimitRanges("shop").Get(t.Context(), "a", metav1.GetOptions{}); err != nil || lr.Spec.Limits[0].Default.Cpu().Value() != 1 {
		t.Errorf("The limit range has no defaults: %+v, %v", lr, err)
	}
	if q, err := core.ResourceQuotas("shop").Get(t.Context(), "q", metav1.GetOptions{}); err != nil || len(q.Status.Hard) != 1 {
		t.Errorf("The quota has no status: %+v, %v", q, err)
	}
	if _, err := client(t, c).NodeV1().RuntimeClasses().Get(t.Context(), "r", metav1.GetOptions{}); err != nil {
		t.Errorf("An object without namespaces is found in none: %v", err)
	}
	for _, wrong := range []string{
		"{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {team: 1}}}", "{apiVersion: v1, kind: LimitRange, metadata: {namespace: a, name: a}, spec: {limits: x}}",
	} {
		if err := add(t, c, wrong); err == nil {
			t.Errorf("Added %s", wrong)
		}
	}
}
