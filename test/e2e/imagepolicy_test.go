package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/test/e2e"
)

func withImageBackend(t *testing.T, b *e2e.ImageBackend, defaultAllow bool) e2e.Options {
	t.Helper()
	file := filepath.Join(t.TempDir(), "admission.yaml")
	// The oldest form of the file. The plugin caches nothing.
	text := fmt.Sprintf("imagePolicy: {kubeConfigFile: %q, allowTTL: -1, denyTTL: -1, retryBackoff: 1, defaultAllow: %t}\n", b.Kubeconfig, defaultAllow)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return e2e.Options{Plugins: []string{"ImagePolicyWebhook"}, Flags: []string{"--admission-control-config-file=" + file}}
}

// TestImagePolicyWebhook stops the backend and starts it again.
func TestImagePolicyWebhook(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		defaultAllow bool
		want         string // a part of the denial while the backend is away, or "" for none
	}{
		"by default": {false, "connection refused"}, "with defaultAllow": {true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := suite.Lend(t)
			ns := c.Namespace(t)
			b := e2e.StartImageBackend(t)
			c.StartPostern(t, withImageBackend(t, b, tc.defaultAllow))
			create := func(ctx context.Context, image string) error {
				p := podWith("web", func(s *corev1.PodSpec) { s.Containers[0].Image = image })
				_, err := c.Admin.CoreV1().Pods(ns).Create(ctx, p, dryRun())
				return err
			}
			e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
				switch err := create(ctx, "denied:v1"); {
				case err == nil:
					return errors.New("it does not")
				case !apierrors.IsForbidden(err):
					return err
				}
				return nil
			})
			expect := func(when, image, want string) {
				t.Helper()
				err := create(t.Context(), image)
				if want == "" && err != nil || want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want)) {
					t.Errorf("%s, %s: got %v, want %q", when, image, err, want)
				}
			}
			expect("At first", "app:v1", "")
			expect("A slow review", "slow:v1", "rejected by webhook backend")
			// The user limits the time of the request, so that the backend cannot answer.
			short := podWith("web", func(s *corev1.PodSpec) { s.Containers[0].Image = "slow:v2" })
			err := c.Admin.CoreV1().RESTClient().Post().MaxRetries(0).Namespace(ns).Resource("pods").Timeout(time.Second).Body(short).Do(t.Context()).Error()
			if _, got := c.Admin.CoreV1().Pods(ns).Get(t.Context(), "web", metav1.GetOptions{}); err == nil || !apierrors.IsNotFound(got) {
				t.Errorf("A short request: got %v, and %v for the pod, want no pod", err, got)
			}
			b.Leave()
			expect("While the backend is away", "app:v1", tc.want)
			expect("While the backend is away", "denied:v1", tc.want)
			opened := 0
			for _, e := range c.Audit(t, func(e e2e.AuditEvent) bool { return e.ObjectRef.Namespace == ns && e.ObjectRef.Resource == "pods" }) {
				if e.Annotations["pods.postern.dev/failed-open"] == "true" {
					opened++
				}
			}
			if want := map[bool]int{true: 2}[tc.defaultAllow]; opened != want {
				t.Errorf("Got %d audit events with failed-open, want %d", opened, want)
			}
			b.Return(t)
			expect("When the backend is back", "app:v1", "")
			expect("When the backend is back", "denied:v1", "denied:v1 is one of 1 images")
		})
	}
}
