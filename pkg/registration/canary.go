package registration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/postern-dev/postern/pkg/router"
)

const (
	canaryWebhook = "canary.postern.dev"
	canaryName    = "postern-canary"
	// canaryLabel is on the object that the canary webhook is called for. Its value is unique for each request.
	canaryLabel = "postern.dev/canary"
	// canaryAnnotation is on the configuration of the canaries. Its value is the name of the replica that applied the
	// configuration last.
	canaryAnnotation = "postern.dev/canary-of"
)

// Canary returns a func that has the API server call Postern. A request from a pod does not show that: between the
// API server and the pods there may be a firewall, or no route at all.
//
// The func registers a webhook that fails closed and matches only a dry-run creation of a Lease in Postern's
// namespace with a label of this replica's choice. Postern answers the webhook with a denial, which the API server
// passes on. The func returns nil for this denial, and removes the configuration then.
//
// The canaries of all replicas are webhooks of one configuration, whose name is constant, so that a role can name it.
// A replica that loses its webhook because another replica removes the configuration applies it again at its next
// attempt.
func (r *Registrar) Canary() func(context.Context) error {
	c := &canary{registrar: r, nonce: strings.ToLower(rand.Text())}
	return c.call
}

type canary struct {
	registrar *Registrar
	nonce     string
}

func (c *canary) call(ctx context.Context) error {
	r := c.registrar
	config, err := c.config(ctx)
	if err != nil {
		return err
	}
	if err := c.apply(ctx, config); err != nil {
		return err
	}
	if err := c.request(ctx); err != nil {
		return err
	}
	return remove(ctx, r.client, resources()[validatingKind], config.GetName(), metav1.DeleteOptions{})
}

// apply adds the webhook of this canary to the configuration. The field manager is the canary's own. The webhooks of
// other replicas therefore stay.
func (c *canary) apply(ctx context.Context, config *unstructured.Unstructured) error {
	_, err := c.registrar.client.Resource(resources()[validatingKind]).Apply(ctx, config.GetName(), config,
		metav1.ApplyOptions{FieldManager: FieldManager + "-" + c.nonce, Force: true})
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", validatingKind, config.GetName(), err)
	}
	return nil
}

func (c *canary) webhook() string { return c.nonce + "." + canaryWebhook }

// config returns the configuration of the canary webhook.
func (c *canary) config(ctx context.Context) (*unstructured.Unstructured, error) {
	r := c.registrar
	d := r.deployment
	r.mu.Lock()
	owner, refusal, err := r.standing(ctx)
	r.mu.Unlock()
	if err = errors.Join(err, refusal); err != nil {
		return nil, err
	}
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: validatingKind},
		ObjectMeta: metav1.ObjectMeta{
			Name: canaryName, Annotations: map[string]string{canaryAnnotation: r.replicas.Name()},
		},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         c.webhook(),
			ClientConfig: d.clientConfig(router.CanaryPath+router.ValidatePath, r.endpoint()),
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{leases.Group}, APIVersions: []string{leases.Version}, Resources: []string{leases.Resource},
					Scope: ptr.To(admissionregistrationv1.NamespacedScope),
				},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: d.Namespace}},
			ObjectSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{canaryLabel: c.nonce}},
			FailurePolicy:     ptr.To(admissionregistrationv1.Fail),
		}},
	}
	d.identify(&config.ObjectMeta)
	w := &config.Webhooks[0]
	d.complete(&w.AdmissionReviewVersions, &w.TimeoutSeconds, &w.SideEffects)
	return owned(config, owner)
}

var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// request makes the request that the API server calls the canary for. Nothing is stored.
func (c *canary) request(ctx context.Context) error {
	r := c.registrar
	lease := &unstructured.Unstructured{Object: map[string]any{"apiVersion": leases.GroupVersion().String(), "kind": "Lease"}}
	lease.SetName(canaryName + "-" + c.nonce)
	lease.SetLabels(map[string]string{canaryLabel: c.nonce})
	_, err := r.client.Resource(leases).Namespace(r.deployment.Namespace).Create(ctx, lease, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		return errors.New("the API server has not observed the canary webhook yet")
	case strings.Contains(err.Error(), router.CanaryAnswer(lease.GetName())):
		return nil
	case strings.Contains(err.Error(), c.webhook()):
		return fmt.Errorf("the API server cannot call Postern: %w", err)
	case apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "cannot create resource"):
		// A policy of somebody else came first. Whether the API server can call Postern
		// is then not known. Such a policy must not stop the registration.
		klog.FromContext(ctx).Info("Warning: the canary request was refused, so it is not known whether the API server can call Postern", "err", err)
		return nil
	}
	return fmt.Errorf("asking the API server to call Postern: %w", err)
}
