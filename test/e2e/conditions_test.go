package e2e_test

import (
	"context"
	"fmt"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// withoutTheirs disables the in-tree plugins that would modify the requests of this test before Postern is called.
const withoutTheirs = "--disable-admission-plugins=TaintNodesByCondition,DefaultStorageClass,StorageObjectInUseProtection," +
	"PersistentVolumeClaimResize,CertificateApproval,CertificateSigning,ClusterTrustBundleAttest,CertificateSubjectRestriction,DefaultIngressClass"

// sent is a request and the expected number of webhook calls for it. The test ignores the answer of the API server.
type sent struct {
	name  string
	calls int
	send  func(context.Context) error
}

// TestMatchConditions counts the webhook calls of a real API server for requests that a plugin must handle, and for
// requests that a plugin need not handle. The test runs some plugins of the family pods.
// OwnerReferencesPermissionEnforcement has its own test.
func TestMatchConditions(t *testing.T) {
	t.Parallel()
	for name, requestsOf := range map[string]func(*testing.T, *world) []map[string][]sent{
		// The requests of ResourceQuota need a pod and a claim of the others.
		"pods, storage and quotas": func(t *testing.T, w *world) []map[string][]sent {
			t.Helper()
			return []map[string][]sent{w.podRequests(t), w.storageRequests(t), w.quotaRequests()}
		},
		"nodes and certificates": func(t *testing.T, w *world) []map[string][]sent {
			t.Helper()
			return []map[string][]sent{w.nodeRequests(t), w.certificateRequests(t)}
		},
		"namespaces, networks and events": func(_ *testing.T, w *world) []map[string][]sent {
			return []map[string][]sent{w.namespaceRequests(), w.networkRequests(), w.eventRequests()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// No kube-controller-manager runs, so the test is the only client.
			c := suite.Start(t, controlplane.Options{APIServerFlags: []string{withoutTheirs}})
			w := newWorld(t, c)
			letAliceTouchCertificates(t, c)
			for _, family := range requestsOf(t, w) {
				for plugin, requests := range family {
					t.Run(plugin, func(t *testing.T) { w.countsCalls(t, plugin, requests) })
				}
			}
		})
	}
}

// countsCalls runs a plugin and sends the requests. The first request matches the match conditions of the plugin.
func (w *world) countsCalls(t *testing.T, plugin string, requests []sent) {
	t.Helper()
	p := w.StartPostern(t, e2e.Options{Plugins: []string{plugin}, Flags: []string{configured(t, configurations)}})
	called := func() int { return int(p.Metric(t, "postern_webhook_requests_total")) }
	e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
		if err := requests[0].send(ctx); called() == 0 {
			return fmt.Errorf("it does not for: %s, to which it answers: %w", requests[0].name, err)
		}
		return nil
	})
	for _, r := range requests {
		before := called()
		err := r.send(t.Context())
		if got := called() - before; got != r.calls {
			t.Errorf("%s: got %d calls, want %d; the API server answered: %v", r.name, got, r.calls, err)
		}
	}
	// Webhooks of a stopped Postern would disturb the test of the next plugin.
	if code, said := w.RunPostern(t, "uninstall", "--kubeconfig="+w.Kubeconfig(controlplane.Admin)); code != 0 {
		t.Fatalf("postern uninstall exited with %d: %s", code, said)
	}
	p.Stop(t)
	if err := w.UndoUninstall(t.Context()); err != nil {
		t.Fatalf("Removing the annotation: %v", err)
	}
}

// configurations are those of the plugins that do nothing without a configuration.
const configurations = `- name: EventRateLimit
  configuration: {apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Server, qps: 100, burst: 100}]}
- name: NamespaceLifecycle
  configuration: {immortalNamespaces: [forever]}`

// letAliceTouchCertificates grants alice the RBAC permissions for certificate signing requests, but no permission for
// any signer.
func letAliceTouchCertificates(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	rbac := c.Admin.RbacV1()
	if _, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "alice"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{certificatesv1.GroupName}, Verbs: []string{"create", "update"},
		Resources: []string{"certificatesigningrequests/approval", "certificatesigningrequests/status", "clustertrustbundles"},
	}}}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Creating a ClusterRole: %v", err)
	}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "alice"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "alice"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: string(controlplane.Alice)}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Binding it: %v", err)
	}
}

func (w *world) configMap(o metav1.CreateOptions) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := w.Admin.CoreV1().ConfigMaps(w.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "sent-"}}, o)
		return err
	}
}

func (w *world) lease(ctx context.Context) error {
	_, err := w.Admin.CoordinationV1().Leases(w.namespace).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{GenerateName: "sent-"}}, metav1.CreateOptions{})
	return err
}

func (w *world) changeSecret(ctx context.Context) error {
	_, err := w.Admin.CoreV1().Secrets(w.namespace).Patch(ctx, "secret", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	return err
}

func (w *world) makeAnyNamespace(ctx context.Context) error {
	_, err := w.Admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "sent-"}}, dryRun())
	return err
}

func (w *world) namespaceRequests() map[string][]sent {
	deleteNamespace := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			return w.Admin.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		}
	}
	return map[string][]sent{
		"NamespaceAutoProvision": {
			{"a ConfigMap is created", 1, w.configMap(metav1.CreateOptions{})},
			{"a ConfigMap is created in a dry run", 0, w.configMap(dryRun())},
			{"a Secret is changed", 0, w.changeSecret},
			{"a lease is created", 0, w.lease},
			{"a namespace is created", 0, w.makeAnyNamespace},
		},
		"NamespaceLifecycle": {
			{"a ConfigMap is created", 1, w.configMap(dryRun())},
			{"a Secret is changed", 0, w.changeSecret},
			{"a lease is created", 0, w.lease},
			{"a namespace is created", 0, w.makeAnyNamespace},
			{"a namespace is deleted", 0, deleteNamespace(w.namespace)},
			{"a namespace is deleted that cannot be", 1, func(ctx context.Context) error {
				forever := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "forever"}}
				if _, err := w.Admin.CoreV1().Namespaces().Create(ctx, forever, metav1.CreateOptions{}); err != nil {
					return err
				}
				return deleteNamespace("forever")(ctx)
			}},
		},
		"NamespaceExists": {
			{"a ConfigMap is created", 1, w.configMap(dryRun())},
			{"a Secret is changed", 1, w.changeSecret},
			{"a lease is created", 0, w.lease},
			{"a namespace is created", 0, w.makeAnyNamespace},
			{"a namespace is deleted", 0, deleteNamespace(w.namespace)},
		},
	}
}

func (w *world) nodeRequests(t *testing.T) map[string][]sent {
	t.Helper()
	joining := func(client kubernetes.Interface, name string, taints ...corev1.Taint) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints}}, dryRun())
			return err
		}
	}
	label := func(key string) func(context.Context) error {
		return func(ctx context.Context) error {
			patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"x"}}}`, key)
			_, err := w.kubelet.CoreV1().Nodes().Patch(ctx, nodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
	}
	return map[string][]sent{
		"NodeRestriction": {
			{"a node makes another one", 1, joining(w.kubelet, "other")},
			{"a node reports its status", 0, w.reportStatus},
			{"a node renews its lease", 0, w.renewLease},
			{"a node gives itself a label of its own", 0, label("example.com/disk")},
			{"a node gives itself a label that is none of its own", 1, label("node-restriction.kubernetes.io/trusted")},
			{"somebody else makes a node", 0, joining(w.Admin, "other")},
			{"somebody else makes a pod", 0, func(ctx context.Context) error {
				_, err := w.Admin.CoreV1().Pods(w.namespace).Create(ctx, pod("sent"), dryRun())
				return err
			}},
			{"a node asks for a certificate of a kubelet", 1, func(ctx context.Context) error {
				_, err := w.kubelet.CertificatesV1().CertificateSigningRequests().Create(ctx, signingRequest(t, "sent", certificatesv1.KubeletServingSignerName), dryRun())
				return err
			}},
		},
		"TaintNodesByCondition": {
			{"a node is made", 1, joining(w.Admin, "other")},
			{"a node is made that has the taint", 1, joining(w.Admin, "other", corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})},
			{"a node reports its status", 0, w.reportStatus},
		},
	}
}

func (w *world) eventRequests() map[string][]sent {
	event := func(o metav1.CreateOptions) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := w.Admin.CoreV1().Events(w.namespace).Create(ctx, &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "sent-"}, InvolvedObject: corev1.ObjectReference{Kind: "Secret", Namespace: w.namespace, Name: "secret"},
			}, o)
			return err
		}
	}
	return map[string][]sent{
		"EventRateLimit": {
			{"an event is written", 1, event(metav1.CreateOptions{})},
			{"an event is written in a dry run", 0, event(dryRun())},
			{"a ConfigMap is created", 0, w.configMap(dryRun())},
		},
	}
}

// quotaRequests returns the requests for ResourceQuota, which any new object in a namespace may concern.
func (w *world) quotaRequests() map[string][]sent {
	patchPod := func(patch string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := w.Admin.CoreV1().Pods(w.namespace).Patch(ctx, "standing", types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
	}
	return map[string][]sent{
		"ResourceQuota": {
			{"a ConfigMap is created", 1, w.configMap(metav1.CreateOptions{})},
			{"a ConfigMap is created in a dry run", 1, w.configMap(dryRun())},
			{"a Secret is changed", 0, w.changeSecret},
			{"a lease is created", 0, w.lease},
			{"a namespace is created", 0, w.makeAnyNamespace},
			{"a pod gets a label", 0, patchPod(`{"metadata":{"labels":{"a":"b"}}}`)},
			{"a pod gets a deadline", 1, patchPod(`{"spec":{"activeDeadlineSeconds":60}}`)},
			{"a claim grows", 1, w.patchClaim(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)},
		},
	}
}
