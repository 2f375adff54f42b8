package registration

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/postern-dev/postern/pkg/router"
)

const (
	canaryWebhook = "canary.postern.dev"
	canaryName    = "postern-canary"
	// canaryLabel is on the Lease that the canary webhook is called for, with a value that is unique for each process. On a pod it
	// says that the process in it has a canary of its own.
	canaryLabel = "postern.dev/canary"
	// canaryAnnotation marks the configuration of the canaries, also for replicas of earlier versions.
	canaryAnnotation = "postern.dev/canary-of"
)

var (
	leases       = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	coreServices = schema.GroupVersionResource{Version: "v1", Resource: "services"}
)

// CanaryService is the Service by which the API server calls the canary of a replica that is not ready. It selects the replicas
// that have a canary of their own.
func (d Deployment) CanaryService() string { return d.Service + "-canary" }

// CanaryHost is the name by which the API server verifies a replica that it calls by CanaryService.
func (d Deployment) CanaryHost() string { return d.CanaryService() + "." + d.Namespace + ".svc" }

// replica returns what the canary of this replica is called, however often the replica restarts. The configuration of the
// canaries therefore does not grow with each restart.
func (c *canary) replica() string {
	sum := sha256.Sum256([]byte(c.registrar.fleet.Name()))
	return hex.EncodeToString(sum[:8])
}

func (c *canary) webhook() string { return c.replica() + "." + canaryWebhook }

// nonce returns the part of the canary's path that is unique for this process.
func (c *canary) nonce() string { return path.Base(c.registrar.CanaryPath) }

// config returns the configuration of the canary webhook.
func (c *canary) config(ctx context.Context, service string) (*unstructured.Unstructured, error) {
	r := c.registrar
	d := r.deployment
	d.Service = service
	owner, refusal, err := r.standing(ctx)
	if err = errors.Join(err, refusal); err != nil {
		return nil, err
	}
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: validatingKind},
		ObjectMeta: metav1.ObjectMeta{
			Name: canaryName, Annotations: map[string]string{canaryAnnotation: "true"},
		},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         c.webhook(),
			ClientConfig: d.clientConfig(r.CanaryPath+router.ValidatePath, r.endpoint()),
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{leases.Group}, APIVersions: []string{leases.Version}, Resources: []string{leases.Resource},
					Scope: ptr.To(admissionregistrationv1.NamespacedScope),
				},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: d.Namespace}},
			ObjectSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{canaryLabel: c.nonce()}},
			FailurePolicy:     ptr.To(admissionregistrationv1.Fail),
		}},
	}
	d.identify(&config.ObjectMeta)
	w := &config.Webhooks[0]
	d.complete(&w.AdmissionReviewVersions, &w.TimeoutSeconds, &w.SideEffects)
	return owned(config, owner)
}

// apply adds the webhook of this canary to the configuration. The field manager is the canary's own. The webhooks of other
// replicas therefore stay.
func (c *canary) apply(ctx context.Context, config *unstructured.Unstructured) error {
	_, err := c.registrar.client.Resource(resources()[validatingKind]).Apply(ctx, config.GetName(), config,
		metav1.ApplyOptions{FieldManager: FieldManager + "-canary-" + c.replica(), Force: true})
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", validatingKind, config.GetName(), err)
	}
	return nil
}

// request makes the request that the API server calls the canary in config for. Nothing is stored.
func (c *canary) request(ctx context.Context, service string, config *unstructured.Unstructured) error {
	r := c.registrar
	lease := &unstructured.Unstructured{Object: map[string]any{"apiVersion": leases.GroupVersion().String(), "kind": "Lease"}}
	lease.SetName(canaryName + "-" + c.replica())
	lease.SetLabels(map[string]string{canaryLabel: c.nonce()})
	admitted, err := r.client.Resource(leases).Namespace(r.deployment.Namespace).Create(ctx, lease, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil && admitted.GetLabels()[canaryLabel] != c.nonce():
		return &noCanary{fmt.Errorf("somebody removes the label %s from Leases", canaryLabel), true}
	case err == nil:
		return errNotObserved
	case strings.Contains(err.Error(), router.CanaryAnswer(lease.GetName())):
		return nil
	case strings.Contains(err.Error(), c.webhook()):
		// The error may have the URL. Who sees /readyz or an Event must not learn the path in it.
		text := strings.ReplaceAll(err.Error(), calledPath(webhookList(config.Object)[0]), "/…"+router.ValidatePath)
		return fmt.Errorf("the API server has not reached this replica by Service %s: %s", service, text)
	case isRefusal(err):
		// A policy of somebody else came first, or the service account may not create Leases.
		return &noCanary{fmt.Errorf("creating a Lease in a dry run: %w", err), true}
	}
	return fmt.Errorf("asking the API server to call this replica: %w", err)
}

// isRefusal reports whether an error is the answer of somebody who decided against the request, and would again.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
}
