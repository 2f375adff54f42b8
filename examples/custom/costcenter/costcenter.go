// Package costcenter is a bare AdmissionService: it refuses Services of type
// LoadBalancer that do not say who pays for them.
package costcenter

import (
	"context"
	"encoding/json"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/router"
)

// Service is the service: where it is served, what decides, and when it is called.
func Service(admit.Deps) (router.AdmissionService, error) {
	fail := admissionregistrationv1.Fail
	return router.AdmissionService{
		Path:     "/cost-center",
		Validate: validate,
		ValidatingConfig: &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "cost-center"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "cost-center.example.com", FailurePolicy: &fail,
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE"},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"services"}},
				}},
			}},
		},
	}, nil
}

func validate(_ context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	var svc corev1.Service
	if err := json.Unmarshal(r.Object.Raw, &svc); err != nil {
		// The user chose the object. A code of 500 or more would leave the decision to the failure policy.
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Message: err.Error()}}
	}
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Labels["cost-center"] == "" {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: http.StatusForbidden, Message: "a load balancer needs the label cost-center"}}
	}
	return &admissionv1.AdmissionResponse{Allowed: true}
}
