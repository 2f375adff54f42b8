package e2e

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Webhook is a mutating webhook for new objects that is not Postern's.
type Webhook struct {
	// Resource is the resource for which the API server calls the webhook. StartWebhook sets it to pods.
	Resource schema.GroupVersionResource
	client   admissionregistrationv1.WebhookClientConfig
	calls    atomic.Int64
}

// Calls returns how often the API server has called the webhook.
func (w *Webhook) Calls() int64 { return w.calls.Load() }

// StartWebhook starts a webhook that answers every request with the JSON patch. It is stopped when the test
// ends.
func StartWebhook(tb testing.TB, patch string) *Webhook {
	tb.Helper()
	w := &Webhook{Resource: corev1.SchemeGroupVersion.WithResource("pods")}
	jsonPatch := admissionv1.PatchTypeJSONPatch
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		w.calls.Add(1)
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(rw, "not a review", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Allowed: true, Patch: []byte(patch), PatchType: &jsonPatch,
		}
		review.Request = nil
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(review)
	}))
	tb.Cleanup(server.Close)
	w.client = admissionregistrationv1.WebhookClientConfig{
		URL:      &server.URL,
		CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	return w
}

// Register registers the webhook under a name, by which the API server orders webhooks. The API server calls it for
// objects that are created in the namespace, or outside of namespaces.
func (c *Cluster) Register(tb testing.TB, w *Webhook, name, namespace string, policy admissionregistrationv1.ReinvocationPolicyType) {
	tb.Helper()
	_, err := c.Admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(tb.Context(), w.Configuration(name, namespace, policy), metav1.CreateOptions{})
	if err != nil {
		tb.Fatalf("Registering %s: %v", name, err)
	}
}

// Configuration returns the webhook configuration that Register creates.
func (w *Webhook) Configuration(name, namespace string, policy admissionregistrationv1.ReinvocationPolicyType) *admissionregistrationv1.MutatingWebhookConfiguration {
	none := admissionregistrationv1.SideEffectClassNone
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: name + ".example.com", ClientConfig: w.client, ReinvocationPolicy: &policy,
			SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{w.Resource.Group}, APIVersions: []string{w.Resource.Version}, Resources: []string{w.Resource.Resource},
				},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
		}},
	}
}
