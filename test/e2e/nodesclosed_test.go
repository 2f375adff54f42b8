package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/test/e2e"
)

// TestNodesFailClosed runs NodeRestriction with failurePolicy: Fail. A node that makes Postern late, or finds it away, gets
// nothing that it would not get from Postern. It still gets what it needs to start Postern.
func TestNodesFailClosed(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	w := newWorld(t, c)
	w.account(t, w.namespace, "network")
	config := configured(t, "- name: NodeRestriction\n  configuration: {failurePolicy: Fail, failOpenServiceAccounts: [{namespace: "+w.namespace+", name: network}]}")
	p := c.StartPostern(t, e2e.Options{Plugins: []string{"NodeRestriction"}, Flags: []string{config, "--webhook-timeout=1s"}})
	ours, network, other := w.podOf(t, e2e.PosternNamespace, "default"), w.podOf(t, w.namespace, "network"), w.podOf(t, w.namespace, "default")
	e2e.Eventually(t, settleBound, "the node gets a token only for its pod", func(ctx context.Context) error {
		if err := w.token(ctx, other, nil); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "not bound to a pod") {
			return fmt.Errorf("a token bound to nothing: got %w, want a denial", err)
		}
		return w.token(ctx, other, boundTo(other))
	})
	e2e.Eventually(t, settleBound, "the authorizer knows the other pods", func(ctx context.Context) error {
		return errors.Join(w.token(ctx, ours, boundTo(ours)), w.token(ctx, network, boundTo(network)))
	})

	elsewhere := w.podOn(t, e2e.PosternNamespace, "default", "another-node")
	t.Run("in Postern's namespace", func(t *testing.T) {
		w.checkOwnNamespace(t, ours, elsewhere, denied)
		if err := w.token(t.Context(), ours, boundTo(elsewhere)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "a different node") {
			t.Errorf("A token for a pod of another node: got %v, want a denial", err)
		}
	})

	p.Kill()
	t.Run("stopped", func(t *testing.T) { w.checkClosed(t, ours, network, other) })
	t.Run("stopped, in Postern's namespace", func(t *testing.T) { w.checkOwnNamespace(t, ours, elsewhere, refused) })
	e2e.StartSilence(t, p.Addr())
	t.Run("silent", func(t *testing.T) {
		for _, p := range []*corev1.Pod{network, other} {
			refused(t, "a token of "+p.Name+" bound to nothing", w.token(t.Context(), p, nil))
		}
		refused(t, "a pod with a Secret", w.podWithSecret(t.Context(), w.namespace))
		for _, p := range []*corev1.Pod{network, ours} {
			if err := w.token(t.Context(), p, boundTo(p)); err != nil {
				t.Errorf("A token for the pod %s/%s: %v, want success", p.Namespace, p.Name, err)
			}
		}
	})
}

// checkClosed checks which requests of a node the API server rejects while Postern is stopped.
func (w *world) checkClosed(t *testing.T, ours, network, other *corev1.Pod) {
	t.Helper()
	refused(t, "a token bound to nothing", w.token(t.Context(), other, nil))
	refused(t, "a token of a service account that fails open, bound to nothing", w.token(t.Context(), network, nil))
	refused(t, "a token for a pod", w.token(t.Context(), other, boundTo(other)))
	refused(t, "a pod with a Secret", w.podWithSecret(t.Context(), w.namespace))
	for _, signer := range []string{certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName} {
		_, err := w.kubelet.CertificatesV1().CertificateSigningRequests().Create(t.Context(), signingRequest(t, "closed", signer), dryRun())
		refused(t, "a certificate of "+signer, err)
	}
	for what, err := range map[string]error{
		"a token for Postern's pod":                    w.token(t.Context(), ours, boundTo(ours)),
		"a token of a service account that fails open": w.token(t.Context(), network, boundTo(network)),
		"the status of the node":                       w.reportStatus(t.Context()),
		"the lease of the node":                        w.renewLease(t.Context()),
		"the deletion of Postern's pod":                w.kubelet.CoreV1().Pods(ours.Namespace).Delete(t.Context(), ours.Name, asKubelet(ours)),
	} {
		if err != nil {
			t.Errorf("%s: %v, want success", what, err)
		}
	}
	w.checkStatusOf(t, ours)
	t.Run("a node joins", func(t *testing.T) {
		w.removeNode(t)
		if err := w.registerNode(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// checkOwnNamespace checks the requests of a node that it does not need to run a pod of Postern. With them it could take the
// CA and the service account of Postern, or take its pods out of service.
func (w *world) checkOwnNamespace(t *testing.T, ours, elsewhere *corev1.Pod, check func(t *testing.T, what string, err error)) {
	t.Helper()
	pods := w.kubelet.CoreV1().Pods(e2e.PosternNamespace)
	check(t, "a pod with a Secret", w.podWithSecret(t.Context(), e2e.PosternNamespace))
	check(t, "a token bound to nothing", w.token(t.Context(), ours, nil))
	check(t, "the deletion of a pod of another node", pods.Delete(t.Context(), elsewhere.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
	_, err := pods.Patch(t.Context(), elsewhere.Name, "application/strategic-merge-patch+json", []byte(`{"status":{"podIP":"192.0.2.9"}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
	check(t, "the status of a pod of another node", err)
}

func denied(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `admission webhook "nodes-own.postern.dev" denied the request`) {
		t.Errorf("%s: got %v, want a denial", what, err)
	}
}

// asKubelet returns the options with which a kubelet deletes a pod whose containers have ended, as a dry run.
func asKubelet(p *corev1.Pod) metav1.DeleteOptions {
	return metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(p.UID)), DryRun: []string{metav1.DryRunAll}}
}

// refused checks that the API server rejected a request because it got no answer of the webhook.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsInternalError(err) || !failed.MatchString(err.Error()) {
		t.Errorf("%s: got %v, want an internal error about the webhook", what, err)
	}
}

var failed = regexp.MustCompile(`failed calling webhook "nodes(-own)?\.postern\.dev"`)

// account creates a service account and removes it at the end of the test.
func (w *world) account(t *testing.T, namespace, name string) {
	t.Helper()
	accounts := w.Admin.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Creating a service account: %v", err)
	}
	t.Cleanup(func() { _ = accounts.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })
}

// podOf creates a pod of a service account on the node.
func (w *world) podOf(t *testing.T, namespace, account string) *corev1.Pod {
	t.Helper()
	return w.podOn(t, namespace, account, nodeName)
}

func (w *world) podOn(t *testing.T, namespace, account, node string) *corev1.Pod {
	t.Helper()
	p := pod("of-" + account + "-on-" + node)
	p.Spec.ServiceAccountName, p.Spec.NodeName = account, node
	made, err := w.Admin.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Creating a pod: %v", err)
	}
	w.endWith(t, made)
	return made
}

// podWithSecret has the node create an ordinary pod on itself that mounts a Secret.
func (w *world) podWithSecret(ctx context.Context, namespace string) error {
	p := pod("thief")
	p.Spec.NodeName = nodeName
	p.Spec.Volumes = []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret"}}}}
	_, err := w.kubelet.CoreV1().Pods(namespace).Create(ctx, p, dryRun())
	return err
}
