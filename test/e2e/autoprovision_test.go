package e2e_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

const (
	// cannotAutoProvision and canAutoProvision are the beginnings of Postern's log messages about the result of
	// its check.
	cannotAutoProvision = "NamespaceAutoProvision cannot work here"
	canAutoProvision    = "The API server calls webhooks for what is created in a namespace that does not exist"
)

func autoProvision() e2e.Options { return e2e.Options{Plugins: []string{"NamespaceAutoProvision"}} }

// logs waits until Postern has logged the sentence.
func logs(t *testing.T, p *e2e.Postern, sentence string) {
	t.Helper()
	e2e.Eventually(t, settleBound, "Postern logs "+sentence, func(context.Context) error {
		if !strings.Contains(p.Log(), sentence) {
			return fmt.Errorf("it has logged %d bytes without it", len(p.Log()))
		}
		return nil
	})
}

func createSettings(ctx context.Context, c *e2e.Cluster, namespace string) error {
	_, err := c.Admin.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}, metav1.CreateOptions{})
	return err
}

// TestNamespaceIsMade tests an API server on which the in-tree NamespaceLifecycle is disabled.
func TestNamespaceIsMade(t *testing.T) {
	t.Parallel()
	c := suite.Start(t, controlplane.Options{APIServerFlags: []string{"--disable-admission-plugins=NamespaceLifecycle"}})
	options := autoProvision()
	options.Flags = []string{"--webhook-timeout=2s"}
	p := c.StartPostern(t, options)
	logs(t, p, canAutoProvision)
	if strings.Contains(p.Log(), cannotAutoProvision) {
		t.Error("Postern warns where NamespaceAutoProvision can work")
	}
	tries := 0
	e2e.Eventually(t, settleBound, "a namespace is made for what is created in it", func(ctx context.Context) error {
		tries++
		namespace := fmt.Sprintf("made-%d", tries)
		if err := createSettings(ctx, c, namespace); err != nil {
			return err
		}
		_, err := c.Admin.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		return err
	})
	list, err := c.Admin.CoreV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod"})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("There are %d events about pods, %v; want none: Postern asks in a dry run", len(list.Items), err)
	}
	hangAtNamespaces(t, c)
	// What a controller creates fails open where Postern fails.
	controller := c.As(t, "system:serviceaccount:kube-system:replicaset-controller", "system:masters")
	e2e.Eventually(t, settleBound, "what is created in a namespace that is not made in time is denied", func(ctx context.Context) error {
		tries++
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}
		_, err := controller.CoreV1().ConfigMaps(fmt.Sprintf("made-%d", tries)).Create(ctx, settings, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "denied the request: ") {
			return fmt.Errorf("got %w, want it denied", err)
		}
		return nil
	})
}

// hangAtNamespaces registers a webhook for new namespaces that does not answer.
func hangAtNamespaces(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	none := admissionregistrationv1.SideEffectClassNone
	_, err = c.Admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hanging"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "hanging.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new(fmt.Sprint("https://", l.Addr()))},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"namespaces"}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// TestNamespaceCannotBeMade tests an API server with default flags.
func TestNamespaceCannotBeMade(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	p := c.StartPostern(t, autoProvision())
	logs(t, p, cannotAutoProvision)
	if strings.Contains(p.Log(), canAutoProvision) {
		t.Error("Postern says that NamespaceAutoProvision can work, want the warning alone")
	}
	if err := createSettings(t.Context(), c, "nowhere"); !apierrors.IsNotFound(err) {
		t.Errorf("Creating something in a namespace that does not exist returned %v, want not found", err)
	}
}
