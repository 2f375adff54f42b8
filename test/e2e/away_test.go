package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// TestAClusterWorksWhilePosternIsStopped runs every plugin and stops Postern while its webhooks are still registered. All
// requests that the cluster needs to work, and to start Postern again, must succeed.
func TestAClusterWorksWhilePosternIsStopped(t *testing.T) {
	t.Parallel()
	checkAwayFrom(t, func(p *e2e.Postern) { p.Kill() })
}

// TestAClusterWorksWhilePosternIsSilent is the same with a network that loses packets.
func TestAClusterWorksWhilePosternIsSilent(t *testing.T) {
	ring.Second(t, "40 s of time-outs")
	t.Parallel()
	checkAwayFrom(t, func(p *e2e.Postern) {
		p.Kill()
		e2e.StartSilence(t, p.Addr())
	})
}

// checkAwayFrom runs every plugin, takes Postern away, and checks that the cluster works.
func checkAwayFrom(t *testing.T, takeAway func(*e2e.Postern)) {
	t.Helper()
	c := suite.Lend(t)
	w := &world{Cluster: c, kubelet: c.Client(t, controlplane.Node), namespace: c.Namespace(t)}
	c.AllowPods(t)
	o := suite.AllPlugins(t)
	// FleetQuota decides about each workload, so nobody can create one while Postern is away.
	o.Plugins = without(o.Plugins, "FleetQuota")
	o.Flags = append(o.Flags, "--webhook-timeout=1s")
	p := startServing(t, c, o)
	// The node of this pod joins while Postern is away.
	running := w.runningPod(t)
	w.deploy(t, e2e.PosternNamespace, "away", 1)
	w.awaitAllFamilies(t, p, "fleetquota")
	takeAway(p)
	w.checkAll(t, running)
	w.checkReturn(t)
}

// checkAll checks a cluster while Postern is away.
func (w *world) checkAll(t *testing.T, running *corev1.Pod) {
	t.Helper()
	_, err := w.Admin.CoreV1().Pods(w.namespace).Create(t.Context(), pod("refused"), metav1.CreateOptions{})
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Fatalf("Creating a pod returned %v, want an internal error about the webhook: Postern is not away", err)
	}
	w.checkNode(t)
	w.checkPodOfPostern(t)
	t.Run("the kubelet gets a token for a pod of a user", func(t *testing.T) { w.checkToken(t, running) })
	w.checkStatusOf(t, running)
	w.checkControllers(t)
	w.checkCertificates(t)
}

// checkReturn starts a new Postern, waits until it serves, and then uninstalls Postern.
func (w *world) checkReturn(t *testing.T) {
	t.Helper()
	t.Run("a new Postern takes over", func(t *testing.T) {
		again := w.StartPostern(t, suite.AllPlugins(t))
		awaitCalled(t, w.Cluster)
		again.Kill()
	})
	t.Run("uninstall", func(t *testing.T) {
		uninstall(t, w.Cluster)
		for resource, configs := range registeredBy(t, w.Cluster) {
			if len(configs) > 0 {
				t.Errorf("There still are %d %s", len(configs), resource)
			}
		}
		if _, err := w.Admin.CoreV1().Pods(w.namespace).Create(t.Context(), pod("accepted"), metav1.CreateOptions{}); err != nil {
			t.Errorf("Creating a pod: %v", err)
		}
	})
}

// runningPod creates a user's pod that runs on a node and is an endpoint of a Service.
func (w *world) runningPod(t *testing.T) *corev1.Pod {
	t.Helper()
	own := pod("running")
	own.Labels = map[string]string{"app": "running"}
	own.Spec.NodeName = nodeName
	made, err := w.Admin.CoreV1().Pods(w.namespace).Create(t.Context(), own, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Creating a pod: %v", err)
	}
	w.endWith(t, made)
	return made
}

// endWith deletes a pod when the test ends. There is no kubelet that could stop a scheduled pod.
func (w *world) endWith(t *testing.T, p *corev1.Pod) {
	t.Helper()
	t.Cleanup(func() {
		err := w.Admin.CoreV1().Pods(p.Namespace).Delete(context.WithoutCancel(t.Context()), p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if e2e.IgnoreNotFound(err) != nil {
			t.Errorf("Deleting pod %s: %v", p.Name, err)
		}
	})
}

// checkNode checks that a node can register, renew its Lease and report its status.
func (w *world) checkNode(t *testing.T) {
	t.Helper()
	t.Run("a node joins", func(t *testing.T) {
		request := signingRequest(t, "bootstrap", certificatesv1.KubeAPIServerClientKubeletSignerName)
		if _, err := w.kubelet.CertificatesV1().CertificateSigningRequests().Create(t.Context(), request, metav1.CreateOptions{}); err != nil {
			t.Errorf("Asking for a certificate: %v", err)
		}
		if err := w.registerNode(t.Context()); err != nil {
			t.Errorf("Registering: %v", err)
		}
		t.Cleanup(func() {
			_ = w.Admin.CertificatesV1().CertificateSigningRequests().Delete(context.WithoutCancel(t.Context()), request.Name, metav1.DeleteOptions{})
		})
	})
	t.Cleanup(func() { w.removeNode(t) })
	t.Run("its heartbeats arrive", func(t *testing.T) {
		if err := w.reportStatus(t.Context()); err != nil {
			t.Errorf("Reporting its status: %v", err)
		}
		for range 2 {
			if err := w.renewLease(t.Context()); err != nil {
				t.Errorf("Renewing its lease: %v", err)
			}
		}
	})
}

// checkPodOfPostern checks that a pod of Postern can be scheduled, started and scaled.
func (w *world) checkPodOfPostern(t *testing.T) {
	t.Helper()
	ours := w.Admin.CoreV1().Pods(e2e.PosternNamespace)
	t.Run("Postern is scaled", func(t *testing.T) {
		deployments := w.Admin.AppsV1().Deployments(e2e.PosternNamespace)
		_, err := deployments.UpdateScale(t.Context(), "away", &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: "away", Namespace: e2e.PosternNamespace}, Spec: autoscalingv1.ScaleSpec{Replicas: 3},
		}, metav1.UpdateOptions{})
		if err != nil {
			t.Fatalf("Scaling: %v", err)
		}
		w.awaitPods(t, e2e.PosternNamespace, "away", 3)
		t.Cleanup(func() {
			_ = deployments.Delete(context.WithoutCancel(t.Context()), "away", metav1.DeleteOptions{})
		})
	})
	t.Run("its pods start", func(t *testing.T) {
		p, err := ours.Create(t.Context(), pod("starting"), metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("Creating a pod: %v", err)
		}
		w.endWith(t, p)
		err = ours.Bind(t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("Binding it to a node: %v", err)
		}
		w.checkToken(t, p)
		w.checkStatusOf(t, p)
		refused(t, "a pod of a node that mounts a Secret of Postern", w.podWithSecret(t.Context(), e2e.PosternNamespace))
	})
}

// checkToken checks that the kubelet can request a token for a pod on its node. The node authorizer observes the pod a
// moment later.
func (w *world) checkToken(t *testing.T, p *corev1.Pod) {
	t.Helper()
	e2e.Eventually(t, settleBound, "the kubelet gets a token for pod "+p.Name, func(ctx context.Context) error {
		return w.token(ctx, p, boundTo(p))
	})
}

func boundTo(p *corev1.Pod) *authenticationv1.BoundObjectReference {
	return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}
}

// token has the node request a token of the service account of the pod.
func (w *world) token(ctx context.Context, p *corev1.Pod, bound *authenticationv1.BoundObjectReference) error {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}
	token, err := w.kubelet.CoreV1().ServiceAccounts(p.Namespace).CreateToken(ctx, p.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err == nil && token.Status.Token == "" {
		err = errors.New("the token is empty")
	}
	return err
}

// checkStatusOf checks that the kubelet can report that a pod runs.
func (w *world) checkStatusOf(t *testing.T, p *corev1.Pod) {
	t.Helper()
	t.Run("the kubelet reports the status of pod "+p.Name, func(t *testing.T) {
		patch := `{"status":{"phase":"Running","podIP":"192.0.2.7","podIPs":[{"ip":"192.0.2.7"}],"conditions":[{"type":"Ready","status":"True"}]}}`
		_, err := w.kubelet.CoreV1().Pods(p.Namespace).Patch(t.Context(), p.Name, "application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{}, "status")
		if err != nil {
			t.Errorf("Reporting it: %v", err)
		}
	})
}

// checkControllers checks that the controllers of kube-controller-manager work.
func (w *world) checkControllers(t *testing.T) {
	t.Helper()
	name := fmt.Sprint("away-", time.Now().UnixNano())
	t.Run("a namespace is made, filled and deleted", func(t *testing.T) {
		w.makeNamespace(t, name)
		w.deleteNamespace(t, name)
	})
	t.Run("a Service gets its endpoints", func(t *testing.T) {
		if _, err := w.Admin.CoreV1().Services(w.namespace).Create(t.Context(), service("running"), metav1.CreateOptions{}); err != nil {
			t.Fatalf("Creating a Service: %v", err)
		}
		e2e.Eventually(t, settleBound, "there is an EndpointSlice", func(ctx context.Context) error {
			list, err := w.Admin.DiscoveryV1().EndpointSlices(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=running"})
			if err == nil && (len(list.Items) == 0 || len(list.Items[0].Endpoints) == 0) {
				err = fmt.Errorf("got %d slices", len(list.Items))
			}
			return err
		})
	})
	t.Run("a Deployment gets its ReplicaSet", func(t *testing.T) {
		d := w.deployment("stuck", 1)
		if _, err := w.Admin.AppsV1().Deployments(w.namespace).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatalf("Creating a Deployment: %v", err)
		}
		e2e.Eventually(t, settleBound, "there is a ReplicaSet", func(ctx context.Context) error {
			list, err := w.Admin.AppsV1().ReplicaSets(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=stuck"})
			if err == nil && len(list.Items) != 1 {
				err = fmt.Errorf("got %d", len(list.Items))
			}
			return err
		})
	})
	t.Run("what is owned is collected", func(t *testing.T) {
		foreground := metav1.DeletePropagationForeground
		if err := w.Admin.AppsV1().Deployments(w.namespace).Delete(t.Context(), "stuck", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
			t.Fatalf("Deleting the Deployment: %v", err)
		}
		e2e.Eventually(t, settleBound, "the Deployment is gone", func(ctx context.Context) error {
			_, err := w.Admin.AppsV1().Deployments(w.namespace).Get(ctx, "stuck", metav1.GetOptions{})
			if err == nil {
				return errors.New("it is there")
			}
			return e2e.IgnoreNotFound(err)
		})
	})
}

// checkCertificates checks that the certificate of a kubelet can be approved.
func (w *world) checkCertificates(t *testing.T) {
	t.Helper()
	t.Run("a certificate is approved", func(t *testing.T) {
		requests := w.Admin.CertificatesV1().CertificateSigningRequests()
		made, err := w.kubelet.CertificatesV1().CertificateSigningRequests().Create(t.Context(), signingRequest(t, "kubelet", certificatesv1.KubeletServingSignerName), metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("Asking for a certificate: %v", err)
		}
		t.Cleanup(func() {
			_ = requests.Delete(context.WithoutCancel(t.Context()), made.Name, metav1.DeleteOptions{})
		})
		made.Status.Conditions = append(made.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test", Message: "approved",
		})
		if _, err := requests.UpdateApproval(t.Context(), made.Name, made, metav1.UpdateOptions{}); err != nil {
			t.Errorf("Approving it: %v", err)
		}
	})
}
