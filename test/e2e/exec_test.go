package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

const (
	noPrivileged  = "cannot exec into or attach to a privileged container"
	noHostNetwork = "cannot exec into or attach to a container using host network"
	noHostPID     = "cannot exec into or attach to a container using host pid"
	noHostIPC     = "cannot exec into or attach to a container using host ipc"
)

// connection is an HTTP method of exec or attach, and a user who has only the permissions for that method.
type connection struct {
	subresource, method string
	client              kubernetes.Interface
}

// connections returns exec and attach with both HTTP methods. RBAC calls GET get, and POST create. Since Kubernetes 1.35
// the API server also wants create for GET, and checks it after admission.
func connections(t *testing.T, c *e2e.Cluster, namespace string) []connection {
	t.Helper()
	var out []connection
	for _, subresource := range []string{"exec", "attach"} {
		for method, verbs := range map[string][]string{http.MethodGet: {"get", "create"}, http.MethodPost: {"create"}} {
			user := subresource + "-" + verbs[0]
			grant(t, c, namespace, user, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/" + subresource}, Verbs: verbs})
			out = append(out, connection{subresource, method, c.As(t, user)})
		}
	}
	return out
}

// grant gives a user permissions in a namespace, and returns when the API server's authorizer knows all of them.
func grant(t *testing.T, c *e2e.Cluster, namespace, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	rbac := c.Admin.RbacV1()
	name := metav1.ObjectMeta{Name: user}
	if _, err := rbac.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: name, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Creating a role: %v", err)
	}
	if _, err := rbac.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Binding a role: %v", err)
	}
	last := rules[len(rules)-1]
	resource, subresource, _ := strings.Cut(last.Resources[0], "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: last.Verbs[0], Group: last.APIGroups[0], Resource: resource, Subresource: subresource,
	}}}
	e2e.Eventually(t, settleBound, user+" has the permissions", func(ctx context.Context) error {
		answer, err := c.Admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = errors.New("the authorizer does not know the role")
		}
		return err
	})
}

// send connects to the first container of a pod, and returns the error of the API server.
func (c connection) send(ctx context.Context, namespace, pod string) error {
	var options runtime.Object = &corev1.PodExecOptions{Container: "app", Stdout: true, Command: []string{"sh"}}
	if c.subresource == "attach" {
		options = &corev1.PodAttachOptions{Container: "app", Stdout: true}
	}
	return c.client.CoreV1().RESTClient().Verb(c.method).Namespace(namespace).Resource("pods").Name(pod).SubResource(c.subresource).
		VersionedParams(options, scheme.ParameterCodec).Do(ctx).Error()
}

// wants returns an error if a connection has another result: a denial with the text, or a connection if there is no text.
// There is no node, so a request that admission admits ends at the look-up of the node.
func (c connection) wants(ctx context.Context, namespace, pod, denial string) error {
	err := c.send(ctx, namespace, pod)
	if denial == "" {
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "does not have a host assigned") {
			return fmt.Errorf("%s %s of %s returned %w, want the error that the pod has no node", c.method, c.subresource, pod, err)
		}
		return nil
	}
	want := fmt.Sprintf("admission webhook %q denied the request: pods %q is forbidden: %s", "pods.postern.dev", pod, denial)
	if !apierrors.IsForbidden(err) || err.Error() != want {
		return fmt.Errorf("%s %s of %s returned %w, want %s", c.method, c.subresource, pod, err, want)
	}
	return nil
}

// wantAll fails the test if any of the connections has another result.
func wantAll(t *testing.T, all []connection, namespace, pod, denial string) {
	t.Helper()
	for _, c := range all {
		if err := c.wants(t.Context(), namespace, pod, denial); err != nil {
			t.Error(err)
		}
	}
}

func privileged() *corev1.SecurityContext {
	return &corev1.SecurityContext{Privileged: new(true)}
}

// podWith returns a pod with a change.
func podWith(name string, change func(*corev1.PodSpec)) *corev1.Pod {
	p := pod(name)
	change(&p.Spec)
	return p
}

// TestExecIntoPods tests both plugins with pods of all kinds, exec and attach, and users who have a permission for one
// HTTP method.
func TestExecIntoPods(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	ns := c.Namespace(t)
	all := connections(t, c, ns)
	type denials struct{ escalating, privileged string }
	cases := map[string]denials{}
	for name, tc := range map[string]struct {
		change func(*corev1.PodSpec)
		denials
	}{
		"plain": {func(*corev1.PodSpec) {}, denials{}},
		"unprivileged": {func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(false)}
		}, denials{}},
		"privileged": {func(s *corev1.PodSpec) { s.Containers[0].SecurityContext = privileged() }, denials{noPrivileged, noPrivileged}},
		"other": {func(s *corev1.PodSpec) {
			s.Containers = append(s.Containers, corev1.Container{Name: "other", Image: "other", SecurityContext: privileged()})
		}, denials{noPrivileged, noPrivileged}},
		"init": {func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "init", Image: "init", SecurityContext: privileged()}}
		}, denials{noPrivileged, noPrivileged}},
		"sidecar": {func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "side", Image: "side", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), SecurityContext: privileged()}}
		}, denials{noPrivileged, noPrivileged}},
		"host-network": {func(s *corev1.PodSpec) { s.HostNetwork = true }, denials{noHostNetwork, ""}},
		"host-pid":     {func(s *corev1.PodSpec) { s.HostPID = true }, denials{noHostPID, ""}},
		"host-ipc":     {func(s *corev1.PodSpec) { s.HostIPC = true }, denials{noHostIPC, ""}},
	} {
		if _, err := c.Admin.CoreV1().Pods(ns).Create(t.Context(), podWith(name, tc.change), metav1.CreateOptions{}); err != nil {
			t.Fatalf("Creating the pod %s: %v", name, err)
		}
		cases[name] = tc.denials
	}
	cases["gone"] = denials{`pods "gone" not found`, `pods "gone" not found`}
	for plugin, denialOf := range map[string]func(denials) string{
		"DenyEscalatingExec":   func(d denials) string { return d.escalating },
		"DenyExecOnPrivileged": func(d denials) string { return d.privileged },
	} {
		p := startDenyingExec(t, c, ns, all[0], plugin)
		for name, denials := range cases {
			wantAll(t, all, ns, name, denialOf(denials))
		}
		p.Stop(t)
	}
}

// startDenyingExec starts a Postern and waits until the API server calls it. The namespace has a pod with the name
// privileged. An earlier Postern must have stopped.
func startDenyingExec(t *testing.T, c *e2e.Cluster, namespace string, a connection, plugin string, flags ...string) *e2e.Postern {
	t.Helper()
	p := c.StartPostern(t, e2e.Options{Plugins: []string{plugin}, Flags: flags})
	e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
		return a.wants(ctx, namespace, "privileged", noPrivileged)
	})
	return p
}

// TestNoWayAroundDenyEscalatingExec tests a user who may do everything with pods in a namespace.
func TestNoWayAroundDenyEscalatingExec(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	ns, exempt := c.Namespace(t), c.Namespace(t)
	all := connections(t, c, ns)
	everything := []string{"pods", "pods/attach", "pods/ephemeralcontainers", "pods/exec", "pods/portforward"}
	for _, namespace := range []string{ns, exempt} {
		grant(t, c, namespace, string(controlplane.Alice), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: everything, Verbs: []string{"*"}})
	}
	alice := c.Client(t, controlplane.Alice)
	pods := alice.CoreV1().Pods(ns)
	create := func(t *testing.T, p *corev1.Pod) {
		t.Helper()
		if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatalf("Creating the pod %s: %v", p.Name, err)
		}
	}
	makePrivileged := func(s *corev1.PodSpec) { s.Containers[0].SecurityContext = privileged() }
	create(t, podWith("privileged", makePrivileged))
	p := startDenyingExec(t, c, ns, all[0], "DenyEscalatingExec", "--exempt-namespaces="+exempt)

	t.Run("a pod that is recreated with the same name", func(t *testing.T) {
		create(t, pod("swapped"))
		wantAll(t, all, ns, "swapped", "")
		now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
		for i, a := range all {
			for change, denial := range map[string]string{"hostPID": noHostPID, "": ""} {
				if err := pods.Delete(t.Context(), "swapped", now); err != nil {
					t.Fatalf("Deleting the pod: %v", err)
				}
				create(t, podWith("swapped", func(s *corev1.PodSpec) { s.HostPID = change != "" }))
				if err := a.wants(t.Context(), ns, "swapped", denial); err != nil {
					t.Errorf("Round %d: %v", i+1, err)
				}
			}
		}
	})
	t.Run("an ephemeral container", func(t *testing.T) {
		create(t, pod("debugged"))
		wantAll(t, all, ns, "debugged", "")
		debugged, err := pods.Get(t.Context(), "debugged", metav1.GetOptions{})
		if err != nil {
			t.Fatalf("Reading the pod: %v", err)
		}
		debugged.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: "debug", SecurityContext: privileged(), TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullAlways,
		}}}
		if _, err := pods.UpdateEphemeralContainers(t.Context(), "debugged", debugged, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("Adding an ephemeral container: %v", err)
		}
		wantAll(t, all, ns, "debugged", noPrivileged)
	})
	t.Run("an update", func(t *testing.T) {
		const innocent = `{"spec": {"containers": [{"name": "app", "securityContext": {"privileged": false}}]}}`
		if _, err := pods.Patch(t.Context(), "privileged", types.StrategicMergePatchType, []byte(innocent), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("Changing the pod returned %v, want that it is invalid", err)
		}
		if _, err := pods.Patch(t.Context(), "privileged", types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`), metav1.PatchOptions{}); err != nil {
			t.Errorf("Labelling the pod returned %v", err)
		}
		wantAll(t, all, ns, "privileged", noPrivileged)
	})
	t.Run("kubectl", func(t *testing.T) {
		for _, command := range [][]string{{"exec", "privileged", "--", "sh"}, {"attach", "privileged"}} {
			for _, user := range []controlplane.User{controlplane.Alice, controlplane.Admin} {
				args := append([]string{"-n", ns}, command...)
				if out, err := c.Kubectl(t.Context(), user, args...).CombinedOutput(); err == nil || !strings.Contains(string(out), noPrivileged) {
					t.Errorf("kubectl %v of %s returned %v and said %s, want %s", args, user, err, out, noPrivileged)
				}
			}
		}
	})
	t.Run("other connections and namespaces", func(t *testing.T) {
		err := alice.CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name("privileged").SubResource("portforward").
			VersionedParams(&corev1.PodPortForwardOptions{Ports: []int32{80}}, scheme.ParameterCodec).Do(t.Context()).Error()
		if !apierrors.IsBadRequest(err) {
			t.Errorf("Forwarding a port returned %v, want the error that the pod has no node", err)
		}
		if _, err := alice.CoreV1().Pods(exempt).Create(t.Context(), podWith("privileged", makePrivileged), metav1.CreateOptions{}); err != nil {
			t.Fatalf("Creating a pod in an exempt namespace: %v", err)
		}
		mine := connection{"exec", http.MethodPost, alice}
		if err := mine.wants(t.Context(), exempt, "privileged", ""); err != nil {
			t.Errorf("In an exempt namespace: %v", err)
		}
	})
	t.Run("while Postern is down", func(t *testing.T) {
		create(t, pod("plain"))
		p.Kill()
		for _, name := range []string{"privileged", "plain"} {
			for _, a := range all {
				if err := a.send(t.Context(), ns, name); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "failed calling webhook") {
					t.Errorf("%s %s of %s returned %v, want that the webhook failed", a.method, a.subresource, name, err)
				}
			}
		}
	})
}
