package e2e_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/test/e2e"
)

func TestPodIsMutated(t *testing.T) {
	t.Parallel()
	for name, service := range map[string]bool{"by URL": false, "by Service": true} {
		t.Run(name, func(t *testing.T) {
			c := suite.Lend(t)
			o := alwaysPull()
			o.Service = service
			startServing(t, c, o)
			web := pod("web")
			web.Spec.InitContainers = []corev1.Container{
				{Name: "first", Image: "first:v1"},
				{Name: "second", Image: "second", ImagePullPolicy: corev1.PullNever},
			}
			web.Spec.Volumes = []corev1.Volume{{Name: "files", VolumeSource: corev1.VolumeSource{
				Image: &corev1.ImageVolumeSource{Reference: "files:v1", PullPolicy: corev1.PullIfNotPresent},
			}}}
			pods := c.Admin.CoreV1().Pods(c.Namespace(t))
			if _, err := pods.Create(t.Context(), web, metav1.CreateOptions{}); err != nil {
				t.Fatalf("Creating a pod: %v", err)
			}
			got, err := pods.Get(t.Context(), "web", metav1.GetOptions{})
			if err := pullsAlways(got, err); err != nil {
				t.Fatalf("The stored pod: %v", err)
			}
			if got := len(got.Spec.InitContainers); got != 2 {
				t.Errorf("There are %d init containers, want 2", got)
			}
			if got := got.Spec.Volumes[0].Image; got == nil || got.PullPolicy != corev1.PullAlways {
				t.Errorf("The image volume is %v, want the policy Always", got)
			}
		})
	}
}

// TestLaterWebhookCannotLowerThePolicy registers a webhook that is called after Postern's. The API server reinvokes the
// webhook after it has reinvoked Postern, so the webhook performs the last mutation.
func TestLaterWebhookCannotLowerThePolicy(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	startServing(t, c, alwaysPull())
	ns := c.Namespace(t)
	lower := e2e.StartWebhook(t, `[{"op": "replace", "path": "/spec/containers/0/imagePullPolicy", "value": "IfNotPresent"}]`)
	c.Register(t, lower, "zz-lower", ns, admissionregistrationv1.IfNeededReinvocationPolicy)
	awaitWebhook(t, c, lower, ns)

	_, err := c.Admin.CoreV1().Pods(ns).Create(t.Context(), pod("web"), metav1.CreateOptions{})
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("Creating a pod returned %v, want a denial", err)
	}
	const want = `admission webhook "pods.postern.dev" denied the request: pods "web" is forbidden: ` +
		`spec.containers[0].imagePullPolicy: Unsupported value: "IfNotPresent": supported values: "Always"`
	if got := status.Status(); got.Message != want || got.Code != http.StatusForbidden || got.Reason != metav1.StatusReasonForbidden {
		t.Errorf("Creating a pod returned %d %s %q, want 403 Forbidden %q", got.Code, got.Reason, got.Message, want)
	}
	if _, err := c.Admin.CoreV1().Pods(ns).Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Reading the denied pod returned %v, want not found", err)
	}
}

func TestContainerOfLaterWebhookIsMutated(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	startServing(t, c, alwaysPull())
	ns := c.Namespace(t)
	inject := e2e.StartWebhook(t, `[{"op": "add", "path": "/spec/containers/1", "value":
		{"name": "sidecar", "image": "sidecar", "imagePullPolicy": "IfNotPresent"}}]`)
	c.Register(t, inject, "zz-inject", ns, admissionregistrationv1.NeverReinvocationPolicy)
	awaitWebhook(t, c, inject, ns)

	got, err := c.Admin.CoreV1().Pods(ns).Create(t.Context(), pod("web"), metav1.CreateOptions{})
	if err := pullsAlways(got, err); err != nil {
		t.Fatalf("Creating a pod: %v", err)
	}
	if len(got.Spec.Containers) != 2 {
		t.Errorf("There are %d containers, want the sidecar too", len(got.Spec.Containers))
	}
}

// awaitWebhook waits until the API server calls a new webhook.
func awaitWebhook(t *testing.T, c *e2e.Cluster, w *e2e.Webhook, namespace string) {
	t.Helper()
	e2e.Eventually(t, settleBound, "the API server calls the other webhook", func(ctx context.Context) error {
		// The result of the request does not matter.
		_, err := c.Admin.CoreV1().Pods(namespace).Create(ctx, pod("called"), dryRun())
		if w.Calls() == 0 {
			return errors.Join(errors.New("it was not called"), err)
		}
		return nil
	})
}

func TestDryRunLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	startServing(t, c, alwaysPull())
	pods := c.Admin.CoreV1().Pods(c.Namespace(t))
	before := len(c.PosternWrites(t))
	for range 5 {
		if err := pullsAlways(pods.Create(t.Context(), pod("web"), dryRun())); err != nil {
			t.Errorf("Creating a pod in a dry run: %v", err)
		}
	}
	if list, err := pods.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("After a dry run there are %d pods, %v; want none", len(list.Items), err)
	}
	if writes := c.PosternWrites(t)[before:]; len(writes) != 0 {
		t.Errorf("During a dry run, Postern wrote %+v", writes)
	}
}

func TestExemptNamespaces(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	exempt, other := c.Namespace(t), c.Namespace(t)
	startServing(t, c, alwaysPull("--exempt-namespaces=kube-system,"+exempt))
	for _, ns := range []string{exempt, e2e.PosternNamespace, "kube-system"} {
		if err := isUnchanged(c.Admin.CoreV1().Pods(ns).Create(t.Context(), pod("web"), dryRun())); err != nil {
			t.Errorf("Creating a pod in %s: %v", ns, err)
		}
	}
	for _, ns := range []string{other, metav1.NamespaceDefault} {
		if err := pullsAlways(c.Admin.CoreV1().Pods(ns).Create(t.Context(), pod("web"), dryRun())); err != nil {
			t.Errorf("Creating a pod in %s: %v", ns, err)
		}
	}
}
