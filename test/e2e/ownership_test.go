package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// ownership returns the options of a Postern that runs OwnerReferencesPermissionEnforcement.
func ownership() e2e.Options {
	return e2e.Options{Plugins: []string{"OwnerReferencesPermissionEnforcement"}}
}

// TestOwnershipLeavesControllersAlone tests that kube-controller-manager can create, adopt and collect owned objects. The
// match conditions exclude these requests, so Postern gets no call, and no request fails while Postern is down.
func TestOwnershipLeavesControllersAlone(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	ns := c.Namespace(t)
	p := startOwnership(t, c, ns)
	before := settled(t, p, []string{"ownership"})
	controllersWork(t, c, ns, "served")
	if got := settled(t, p, []string{"ownership"}).minus(before); len(got) != 0 {
		t.Errorf("Got the calls %v, want none", got)
	}
	p.Kill()
	if err := createOwned(t.Context(), c.Client(t, controlplane.Alice), ns, deploymentRef("web"), dryRun()); !apierrors.IsInternalError(err) {
		t.Errorf("Blocking a Deployment returned %v, want an internal error about the webhook: Postern is not down", err)
	}
	controllersWork(t, c, ns, "down")
}

// TestOwnershipIsCalledForTheRest tests a user who is not a controller and sets blockOwnerDeletion. Each request that
// only Postern can decide, and each denied request, costs one call.
func TestOwnershipIsCalledForTheRest(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	makeThings(t, c)
	ns := c.Namespace(t)
	p := startOwnership(t, c, ns)
	alice := c.Client(t, controlplane.Alice)
	const denied = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: "
	for name, tc := range map[string]struct {
		ref   metav1.OwnerReference
		calls float64
		want  string // a part of the denial, or "" for none
	}{
		"a Deployment that alice may finalize":      {ref: deploymentRef("mine")},
		"a Deployment that she may not":             {ref: deploymentRef("web"), calls: 1, want: denied},
		"a custom resource that she may finalize":   {ref: thingRef("mine"), calls: 1},
		"a custom resource that she may not":        {ref: thingRef("web"), calls: 1, want: denied},
		"a kind that the API server does not serve": {ref: blockingRef("e2e.postern.dev/v1", "Unheard", "web"), calls: 1, want: "cannot find RESTMapping"},
	} {
		t.Run(name, func(t *testing.T) {
			before := p.Metric(t, "postern_webhook_requests_total", `service="/ownership"`)
			err := createOwned(t.Context(), alice, ns, tc.ref, dryRun())
			if got := p.Metric(t, "postern_webhook_requests_total", `service="/ownership"`) - before; got != tc.calls {
				t.Errorf("Got %v calls, want %v", got, tc.calls)
			}
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("Got %v, want it allowed", err)
			case tc.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("Got %v, want a denial with %q", err, tc.want)
			}
		})
	}
}

// TestManyCallsOfAUser has a user whose requests need 40,000 access reviews, beside a user in another namespace whose requests need
// some too. Neither gets a failure.
func TestManyCallsOfAUser(t *testing.T) {
	ring.Second(t, "400 clients keep the processors busy")
	t.Parallel()
	// Alice gets rights for the cluster.
	c := suite.Start(t, controlplane.Options{ControllerManager: true})
	suite.Alone(t)
	flooded, quiet := c.Namespace(t), c.Namespace(t)
	p := startOwnership(t, c, flooded)
	mayFinalizeAll(t, c, quiet, "bob")
	mayFinalizeAll(t, c, "", string(controlplane.Alice))
	bob := c.As(t, "bob")
	alice := c.Client(t, controlplane.Alice)
	inNamespace := func(client kubernetes.Interface, ns, name string, owners int) error {
		_, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: ownedBy(name, owners)}, dryRun())
		return err
	}
	namespaces := func(name string, owners int) error {
		_, err := alice.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: ownedBy(name, owners)}, dryRun())
		return err
	}
	e2e.Eventually(t, settleBound, "both have their rights", func(context.Context) error {
		return errors.Join(inNamespace(alice, flooded, "first", 31), namespaces("first", 31), inNamespace(bob, quiet, "first", 31))
	})
	for kind, create := range map[string]func(name string) error{
		"in one namespace": func(name string) error { return inNamespace(alice, flooded, name, 100) },
		"of Namespaces":    func(name string) error { return namespaces(name, 100) },
	} {
		t.Run(kind, func(t *testing.T) {
			const clients = 400
			flood, start := make(chan error, clients), time.Now()
			for i := range clients {
				go func() { flood <- create(fmt.Sprint("flood-", i)) }()
			}
			var slowest time.Duration
			others := 0
			for ; len(flood) < clients; others++ {
				from := time.Now()
				if err := inNamespace(bob, quiet, fmt.Sprint(strings.Fields(kind)[0], "-", others), 31); err != nil {
					t.Errorf("Got %v in a namespace beside the flood", err)
				}
				slowest = max(slowest, time.Since(from))
			}
			took, denied := time.Since(start), 0
			for range clients {
				switch err := <-flood; {
				case err == nil:
				case apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), "too many requests of "):
					denied++
				default:
					t.Errorf("Got %v, want it decided", err)
				}
			}
			if denied == clients || others == 0 {
				t.Errorf("%d requests were denied, and there were %d beside them", denied, others)
			}
			t.Logf("%d requests in %v, of which %d were denied; %d requests beside them, the slowest in %v", clients, took, denied, others, slowest)
		})
	}
	decidesAll(t, p)
}

// ownedBy is the metadata of an object with so many owners that it blocks.
func ownedBy(name string, owners int) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, OwnerReferences: make([]metav1.OwnerReference, owners)}
	for i := range m.OwnerReferences {
		m.OwnerReferences[i] = deploymentRef(fmt.Sprintf("%s-%d", name, i))
		m.OwnerReferences[i].UID = types.UID(m.OwnerReferences[i].Name)
	}
	return m
}

// mayFinalizeAll lets a user create ConfigMaps and Namespaces in a namespace, or everywhere, and block the deletion of Deployments.
func mayFinalizeAll(t *testing.T, c *e2e.Cluster, ns, user string) {
	t.Helper()
	bind(t, c, ns, user, "finalizer", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}, Verbs: []string{"create"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments/finalizers"}, Verbs: []string{"update"}},
	})
}

// bind gives a user rights in a namespace, or everywhere.
func bind(t *testing.T, c *e2e.Cluster, ns, user, name string, rules []rbacv1.PolicyRule) {
	t.Helper()
	rbac := c.Admin.RbacV1()
	if ns == "" {
		if _, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
			t.Fatalf("Creating a ClusterRole: %v", err)
		}
		if _, err := rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatalf("Binding it: %v", err)
		}
		return
	}
	if _, err := rbac.Roles(ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Creating a Role: %v", err)
	}
	if _, err := rbac.RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Binding it: %v", err)
	}
}

// startOwnership starts a Postern and waits until the API server calls it. In the namespace, alice may edit objects, and
// may update the finalizers of owners with the name mine.
func startOwnership(t *testing.T, c *e2e.Cluster, ns string) *e2e.Postern {
	t.Helper()
	bind(t, c, ns, string(controlplane.Alice), "alice", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
		{APIGroups: []string{"apps", "e2e.postern.dev"}, Resources: []string{"deployments/finalizers", "things/finalizers"}, Verbs: []string{"update"}, ResourceNames: []string{"mine"}},
	})
	p := c.StartPostern(t, ownership())
	alice := c.Client(t, controlplane.Alice)
	e2e.Eventually(t, settleBound, "the API server calls Postern, and alice has her rights", func(ctx context.Context) error {
		if err := createOwned(ctx, alice, ns, deploymentRef("web"), dryRun()); err == nil || !strings.Contains(err.Error(), "ownership.postern.dev") {
			return fmt.Errorf("blocking a Deployment returned %w", err)
		}
		return createOwned(ctx, alice, ns, deploymentRef("mine"), dryRun())
	})
	return p
}

func blockingRef(apiVersion, kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: "00000000-0000-0000-0000-000000000001", BlockOwnerDeletion: new(true)}
}

func deploymentRef(name string) metav1.OwnerReference {
	return blockingRef("apps/v1", "Deployment", name)
}

func thingRef(name string) metav1.OwnerReference {
	return blockingRef("e2e.postern.dev/v1", "Thing", name)
}

func createOwned(ctx context.Context, client kubernetes.Interface, ns string, ref metav1.OwnerReference, o metav1.CreateOptions) error {
	_, err := client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "owned-", OwnerReferences: []metav1.OwnerReference{ref}},
	}, o)
	return err
}

// makeThings creates a CustomResourceDefinition and waits until the API server serves the resource.
func makeThings(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	crds := c.Dynamic(t, controlplane.Admin).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	const name = "things.e2e.postern.dev"
	_, err := crds.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": "e2e.postern.dev", "scope": "Namespaced", "names": map[string]any{"plural": "things", "kind": "Thing"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Creating a custom resource definition: %v", err)
	}
	t.Cleanup(func() {
		if err := crds.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("Deleting the custom resource definition: %v", err)
		}
	})
	e2e.Eventually(t, settleBound, "the API server serves it", func(context.Context) error {
		_, err := c.Admin.Discovery().ServerResourcesForGroupVersion("e2e.postern.dev/v1")
		return err
	})
}

// controllersWork checks that controllers create objects with owners, and that the garbage collector deletes them.
func controllersWork(t *testing.T, c *e2e.Cluster, ns, name string) {
	t.Helper()
	labels := map[string]string{"made-by": name}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("").Spec}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	meta := metav1.ObjectMeta{Name: name, Labels: labels}
	job := template.DeepCopy()
	job.Labels, job.Spec.RestartPolicy = map[string]string{"made-by": name + "-job"}, corev1.RestartPolicyNever
	_, err1 := c.Admin.AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: new(int32(10)), Selector: selector, Template: template}}, metav1.CreateOptions{})
	_, err2 := c.Admin.BatchV1().Jobs(ns).Create(t.Context(), &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Completions: new(int32(2)), Parallelism: new(int32(2)), Template: *job}}, metav1.CreateOptions{})
	_, err3 := c.Admin.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatalf("Creating owners: %v", err)
	}
	wantCounts(t, c, ns, name, 10, 2, 1)

	foreground := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}
	if err := errors.Join(
		c.Admin.AppsV1().Deployments(ns).Delete(t.Context(), name, foreground),
		c.Admin.BatchV1().Jobs(ns).Delete(t.Context(), name, foreground),
		c.Admin.CoreV1().Services(ns).Delete(t.Context(), name, foreground),
	); err != nil {
		t.Fatalf("Deleting owners: %v", err)
	}
	wantCounts(t, c, ns, name, 0, 0, 0)
}

// wantCounts waits until the numbers of pods of the Deployment, pods of the Job, and EndpointSlices are as wanted.
func wantCounts(t *testing.T, c *e2e.Cluster, ns, name string, want ...int) {
	t.Helper()
	e2e.Eventually(t, time.Minute, fmt.Sprint("controllers have made, or collected, what is owned by ", name), func(ctx context.Context) error {
		deployed, err1 := c.Admin.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "made-by=" + name})
		done, err2 := c.Admin.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "made-by=" + name + "-job"})
		slices, err3 := c.Admin.DiscoveryV1().EndpointSlices(ns).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + name})
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		if got := []int{len(deployed.Items), len(done.Items), len(slices.Items)}; fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("there are %v, want %v", got, want)
		}
		return nil
	})
}
