package e2e_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// awaitAllFamilies waits until the API server has observed the webhooks of every family. It registers another webhook
// after them and waits until that webhook is called, because the API server observes configurations in order. The families
// in off do not run.
func (w *world) awaitAllFamilies(t *testing.T, p *e2e.Postern, off ...string) {
	t.Helper()
	families := familiesOf(t, w.Cluster)
	w.letAliceEdit(t)
	for family, touch := range w.touches(t) {
		if slices.Contains(off, family) {
			continue
		}
		if !strings.Contains(" "+strings.Join(families, " ")+" ", " "+family+" ") {
			t.Errorf("There is no family %s", family)
			continue
		}
		e2e.Eventually(t, settleBound, "the API server calls the family "+family, func(ctx context.Context) error {
			before := p.Metric(t, "postern_webhook_requests_total", `service="/`+family+`"`)
			touch(ctx)
			if p.Metric(t, "postern_webhook_requests_total", `service="/`+family+`"`) == before {
				return errors.New("it does not")
			}
			return nil
		})
	}
	for _, family := range families {
		if w.touches(t)[family] == nil {
			t.Errorf("The test does not know how to have the family %s called", family)
		}
	}
}

func (w *world) letAliceEdit(t *testing.T) {
	t.Helper()
	w.letAliceEditIn(t, w.namespace)
}

func (w *world) letAliceEditIn(t *testing.T, namespace string) {
	t.Helper()
	_, err := w.Admin.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "alice"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: string(controlplane.Alice)}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Letting alice edit: %v", err)
	}
}

// touches returns a request for each family that makes the API server call the family. The answers do not matter.
func (w *world) touches(t *testing.T) map[string]func(context.Context) {
	t.Helper()
	alice := w.Client(t, controlplane.Alice)
	dry, request := dryRun(), signingRequest(t, "touch", certificatesv1.KubeAPIServerClientSignerName)
	return map[string]func(context.Context){
		"always": func(ctx context.Context) {
			_, _ = w.Admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e2e.FrozenNamespace}}, dry)
		},
		"namespaces": func(ctx context.Context) {
			_, _ = w.Admin.CoreV1().ConfigMaps(w.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "touch"}}, dry)
		},
		"pods": func(ctx context.Context) {
			_, _ = w.Admin.CoreV1().Pods(w.namespace).Create(ctx, pod("touch"), dry)
		},
		"nodes": func(ctx context.Context) {
			_, _ = w.kubelet.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "touch"}}, dry)
		},
		"storage": func(ctx context.Context) {
			_, _ = w.Admin.CoreV1().PersistentVolumeClaims(w.namespace).Create(ctx, claim("touch"), dry)
		},
		"certificates": func(ctx context.Context) {
			_, _ = w.Admin.CertificatesV1().CertificateSigningRequests().Create(ctx, request, dry)
		},
		"network": func(ctx context.Context) {
			s := service("touch")
			s.Spec.ExternalIPs = []string{"192.0.2.1"}
			_, _ = w.Admin.CoreV1().Services(w.namespace).Create(ctx, s, dry)
		},
		"ownership": func(ctx context.Context) {
			yes := true
			// The match conditions exclude the admin, because the admin has all permissions.
			_, _ = alice.CoreV1().ConfigMaps(w.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "touch", OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "example.com/v1", Kind: "Unknown", Name: "x", UID: "x", BlockOwnerDeletion: &yes},
			}}}, dry)
		},
		"deletion": func(ctx context.Context) {
			p := pod("touch")
			p.Annotations = map[string]string{"deletion.postern.dev/release": "no permission"}
			_, _ = alice.CoreV1().Pods(w.namespace).Create(ctx, p, dry)
		},
		"fleetquota": func(ctx context.Context) {
			_, _ = w.Admin.AppsV1().Deployments(w.namespace).Create(ctx, w.deployment("touch", 1), dry)
		},
		"quota": func(ctx context.Context) {
			_, _ = w.Admin.CoreV1().ConfigMaps(w.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "touch"}}, dry)
		},
		"events": func(ctx context.Context) {
			_, _ = w.Admin.CoreV1().Events(w.namespace).Create(ctx, &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{GenerateName: "touch-"},
				InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: w.namespace, Name: "x"},
			}, metav1.CreateOptions{})
		},
	}
}
