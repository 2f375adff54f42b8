package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// nodeName is the name of the node of the user controlplane.Node.
const nodeName = "node-1"

// leaseNamespace is the namespace of the Leases of kubelets.
const leaseNamespace = "kube-node-lease"

// world is a cluster with one node and a namespace, in which happenings take place.
type world struct {
	*e2e.Cluster
	// kubelet is the client of the node.
	kubelet   kubernetes.Interface
	namespace string
	// round is a suffix that makes the object names of each run unique.
	round int
}

// newWorld returns a world with a namespace, a registered node and the Lease of the node.
func newWorld(t *testing.T, c *e2e.Cluster) *world {
	t.Helper()
	w := &world{Cluster: c, kubelet: c.Client(t, controlplane.Node), namespace: c.Namespace(t)}
	if err := w.registerNode(t.Context()); err != nil {
		t.Fatalf("Registering the node: %v", err)
	}
	t.Cleanup(func() { w.removeNode(t) })
	if _, err := w.Admin.CoreV1().Secrets(w.namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret"}}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Creating a Secret: %v", err)
	}
	return w
}

// registerNode creates the Node and its Lease, as a kubelet does when it starts.
func (w *world) registerNode(ctx context.Context) error {
	node, err := w.kubelet.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{
		"kubernetes.io/hostname": nodeName, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
	}}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating the node: %w", err)
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: node.UID}}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new(nodeName), LeaseDurationSeconds: new(int32(40))},
	}
	if _, err := w.kubelet.CoordinationV1().Leases(leaseNamespace).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the lease: %w", err)
	}
	return nil
}

func (w *world) removeNode(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	err := w.Admin.CoreV1().Nodes().Delete(ctx, nodeName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("Deleting the node: %v", err)
	}
	err = w.Admin.CoordinationV1().Leases(leaseNamespace).Delete(ctx, nodeName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("Deleting the lease: %v", err)
	}
}

// reportStatus updates the status of the Node, as the heartbeat of a kubelet does.
func (w *world) reportStatus(ctx context.Context) error {
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
	_, err := w.kubelet.CoreV1().Nodes().PatchStatus(ctx, nodeName, []byte(patch))
	return err
}

// renewLease renews the Lease of the node, as a kubelet does every ten seconds.
func (w *world) renewLease(ctx context.Context) error {
	leases := w.kubelet.CoordinationV1().Leases(leaseNamespace)
	lease, err := leases.Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

const (
	nodeStatus   = "a node reports its status"
	leaseRenewal = "a node renews its lease"
)

// happening is an action whose webhook calls are counted.
type happening struct {
	name string
	// before creates the objects that the happening needs. Its webhook calls are not counted.
	before  func(*testing.T, *world)
	happens func(*testing.T, *world)
}

func happenings() []happening {
	return []happening{
		{name: "a pod is created", happens: func(t *testing.T, w *world) {
			t.Helper()
			w.round++
			if _, err := w.Admin.CoreV1().Pods(w.namespace).Create(t.Context(), pod(fmt.Sprint("pod-", w.round)), metav1.CreateOptions{}); err != nil {
				t.Fatalf("Creating a pod: %v", err)
			}
		}},
		{name: "a Deployment of ten becomes ten pods", happens: func(t *testing.T, w *world) {
			t.Helper()
			w.round++
			w.deploy(t, w.namespace, fmt.Sprint("ten-", w.round), 10)
		}},
		{name: nodeStatus, happens: func(t *testing.T, w *world) {
			t.Helper()
			if err := w.reportStatus(t.Context()); err != nil {
				t.Fatalf("Reporting a status: %v", err)
			}
		}},
		{name: leaseRenewal, happens: func(t *testing.T, w *world) {
			t.Helper()
			if err := w.renewLease(t.Context()); err != nil {
				t.Fatalf("Renewing a lease: %v", err)
			}
		}},
		{name: "an event is written", happens: func(t *testing.T, w *world) {
			t.Helper()
			event := &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "event-"}, Reason: "Happened", Type: corev1.EventTypeNormal,
				InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: w.namespace, Name: "secret"},
			}
			if _, err := w.Admin.CoreV1().Events(w.namespace).Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
				t.Fatalf("Creating an event: %v", err)
			}
		}},
		{name: "a Secret is updated", happens: func(t *testing.T, w *world) {
			t.Helper()
			w.round++
			patch := fmt.Sprintf(`{"stringData":{"round":"%d"}}`, w.round)
			if _, err := w.Admin.CoreV1().Secrets(w.namespace).Patch(t.Context(), "secret", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Fatalf("Changing a Secret: %v", err)
			}
		}},
		{name: "a namespace is deleted", before: func(t *testing.T, w *world) {
			t.Helper()
			w.round++
			w.makeNamespace(t, fmt.Sprint("gone-", w.round))
		}, happens: func(t *testing.T, w *world) {
			t.Helper()
			w.deleteNamespace(t, fmt.Sprint("gone-", w.round))
		}},
	}
}

// makeNamespace creates a namespace and waits until kube-controller-manager has created its default objects.
func (w *world) makeNamespace(t *testing.T, name string) {
	t.Helper()
	if _, err := w.Admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Creating namespace %s: %v", name, err)
	}
	e2e.Eventually(t, settleBound, "kube-controller-manager fills namespace "+name, func(ctx context.Context) error {
		if _, err := w.Admin.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		_, err := w.Admin.CoreV1().ConfigMaps(name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
}

// deleteNamespace deletes a namespace and waits until the namespace is gone.
func (w *world) deleteNamespace(t *testing.T, name string) {
	t.Helper()
	if err := w.Admin.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("Deleting namespace %s: %v", name, err)
	}
	e2e.Eventually(t, time.Minute, "namespace "+name+" is gone", func(ctx context.Context) error {
		_, err := w.Admin.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("it is there")
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// deploy creates a Deployment and waits until its pods exist and its status reports them.
func (w *world) deploy(t *testing.T, namespace, name string, replicas int32) {
	t.Helper()
	d := w.deployment(name, replicas)
	if _, err := w.Admin.AppsV1().Deployments(namespace).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Creating Deployment %s: %v", name, err)
	}
	w.awaitPods(t, namespace, name, replicas)
}

func (w *world) deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("").Spec},
	}}
}

func (w *world) awaitPods(t *testing.T, namespace, name string, replicas int32) {
	t.Helper()
	e2e.Eventually(t, settleBound, fmt.Sprintf("Deployment %s has %d pods", name, replicas), func(ctx context.Context) error {
		pods, err := w.Admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		d, err := w.Admin.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(pods.Items) != int(replicas) || d.Status.Replicas != replicas {
			return fmt.Errorf("there are %d, and its status says %d", len(pods.Items), d.Status.Replicas)
		}
		return nil
	})
}
