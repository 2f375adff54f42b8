package e2e_test

import (
	"context"
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// deniedField returns an error unless a request was denied because of the field.
func deniedField(err error, pod, field string) error {
	want := fmt.Sprintf("admission webhook %q denied the request: pods %q is forbidden: %s is forbidden", "pods.postern.dev", pod, field)
	if !apierrors.IsForbidden(err) || err.Error() != want {
		return fmt.Errorf("got %w, want %s", err, want)
	}
	return nil
}

func asRoot() *corev1.SecurityContext {
	return &corev1.SecurityContext{RunAsUser: new(int64(0))}
}

// debugging returns the pod with an ephemeral container that runs as root.
func debugging(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: fmt.Sprintf("debug-%d", len(p.Spec.EphemeralContainers)), Image: "debug", SecurityContext: asRoot(),
		TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullAlways,
	}})
	return p
}

// TestSecurityContextDeny tests a user who may do everything with pods in a namespace.
func TestSecurityContextDeny(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	ns := c.Namespace(t)
	grant(t, c, ns, string(controlplane.Alice), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "pods/ephemeralcontainers"}, Verbs: []string{"*"}})
	alice := c.Client(t, controlplane.Alice).CoreV1()
	pods := alice.Pods(ns)
	chooseUser := func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1000))} }
	if _, err := pods.Create(t.Context(), podWith("older", chooseUser), metav1.CreateOptions{}); err != nil {
		t.Fatalf("Creating a pod before Postern: %v", err)
	}
	p := c.StartPostern(t, e2e.Options{Plugins: []string{"SecurityContextDeny"}})
	e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
		_, err := pods.Create(ctx, podWith("user", chooseUser), dryRun())
		return deniedField(err, "user", "pod.Spec.SecurityContext.RunAsUser")
	})

	for name, tc := range map[string]struct {
		change func(*corev1.PodSpec)
		field  string
	}{
		"groups": {func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{SupplementalGroups: []int64{1}}
		}, "pod.Spec.SecurityContext.SupplementalGroups"},
		"volume": {func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(1))} }, "pod.Spec.SecurityContext.FSGroup"},
		"labels": {func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{}}
		}, "pod.Spec.SecurityContext.SELinuxOptions"},
		"container": {func(s *corev1.PodSpec) { s.Containers[0].SecurityContext = asRoot() }, "SecurityContext.RunAsUser"},
		"init": {func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "init", Image: "init", SecurityContext: asRoot()}}
		}, "SecurityContext.RunAsUser"},
		"sidecar": {func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "side", Image: "side", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), SecurityContext: asRoot()}}
		}, "SecurityContext.RunAsUser"},
	} {
		_, err := pods.Create(t.Context(), podWith(name, tc.change), metav1.CreateOptions{})
		if err := deniedField(err, name, tc.field); err != nil {
			t.Errorf("Creating the pod %s: %v", name, err)
		}
	}

	t.Run("a pod that chooses nothing", func(t *testing.T) {
		before := p.Metric(t, "postern_webhook_requests_total")
		if _, err := pods.Create(t.Context(), pod("plain"), metav1.CreateOptions{}); err != nil {
			t.Errorf("Creating the pod: %v", err)
		}
		// The API server drops an empty list before it calls.
		const empty = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "empty"},
			"spec": {"securityContext": {"supplementalGroups": []}, "containers": [{"name": "app", "image": "app"}]}}`
		if err := alice.RESTClient().Post().Namespace(ns).Resource("pods").Body([]byte(empty)).Do(t.Context()).Error(); err != nil {
			t.Errorf("Creating a pod with an empty list: %v", err)
		}
		if got := p.Metric(t, "postern_webhook_requests_total") - before; got != 0 {
			t.Errorf("Got %v calls, want none", got)
		}
	})
	t.Run("a pod that is older", func(t *testing.T) {
		_, err := pods.Patch(t.Context(), "older", types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`), metav1.PatchOptions{})
		if err := deniedField(err, "older", "pod.Spec.SecurityContext.RunAsUser"); err != nil {
			t.Errorf("Labelling the pod: %v", err)
		}
		if _, err := c.Admin.CoreV1().Pods(ns).Patch(t.Context(), "older", types.MergePatchType, []byte(`{"status": {"reason": "Test"}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Errorf("Writing the status of the pod: %v", err)
		}
		if err := pods.Delete(t.Context(), "older", metav1.DeleteOptions{}); err != nil {
			t.Errorf("Deleting the pod: %v", err)
		}
	})
	t.Run("a webhook that is called later", func(t *testing.T) {
		other := c.Namespace(t)
		change := e2e.StartWebhook(t, `[{"op": "add", "path": "/spec/securityContext", "value": {"fsGroup": 1000}}]`)
		c.Register(t, change, "zz-group", other, admissionregistrationv1.IfNeededReinvocationPolicy)
		awaitWebhook(t, c, change, other)
		_, err := c.Admin.CoreV1().Pods(other).Create(t.Context(), pod("changed"), metav1.CreateOptions{})
		if err := deniedField(err, "changed", "pod.Spec.SecurityContext.FSGroup"); err != nil {
			t.Errorf("Creating a pod that the webhook changes: %v", err)
		}
	})
	t.Run("an ephemeral container", func(t *testing.T) {
		plain, err := pods.Get(t.Context(), "plain", metav1.GetOptions{})
		if err != nil {
			t.Fatalf("Reading the pod: %v", err)
		}
		plain, err = pods.UpdateEphemeralContainers(t.Context(), "plain", debugging(plain), metav1.UpdateOptions{})
		if err != nil {
			t.Fatalf("Adding an ephemeral container without the field: %v", err)
		}
		p.Stop(t)
		c.StartPostern(t, e2e.Options{Plugins: []string{"SecurityContextDeny"}, Flags: []string{configured(t, "- {name: SecurityContextDeny, configuration: {includeEphemeralContainers: true}}")}})
		e2e.Eventually(t, settleBound, "an ephemeral container is denied", func(ctx context.Context) error {
			_, err := pods.UpdateEphemeralContainers(ctx, "plain", debugging(plain), metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			return deniedField(err, "plain", "SecurityContext.RunAsUser")
		})
		if _, err := pods.Create(t.Context(), pod("other"), metav1.CreateOptions{}); err != nil {
			t.Fatalf("Creating a pod: %v", err)
		}
		other, err := pods.Get(t.Context(), "other", metav1.GetOptions{})
		if err != nil {
			t.Fatalf("Reading the pod: %v", err)
		}
		_, err = pods.UpdateEphemeralContainers(t.Context(), "other", debugging(other), metav1.UpdateOptions{})
		if err := deniedField(err, "other", "SecurityContext.RunAsUser"); err != nil {
			t.Errorf("Adding an ephemeral container that runs as root: %v", err)
		}
		innocent := debugging(other)
		innocent.Spec.EphemeralContainers[0].SecurityContext = nil
		if _, err := pods.UpdateEphemeralContainers(t.Context(), "other", innocent, metav1.UpdateOptions{}); err != nil {
			t.Errorf("Adding an ephemeral container that chooses nothing: %v", err)
		}
		_, err = pods.Patch(t.Context(), "plain", types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`), metav1.PatchOptions{})
		if err := deniedField(err, "plain", "SecurityContext.RunAsUser"); err != nil {
			t.Errorf("Labelling a pod with an ephemeral container that runs as root: %v", err)
		}
	})
}
