// A Postern with one service more: it refuses Services of type LoadBalancer that
// do not say who pays for them.
package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/cmd/postern/app"
	"github.com/postern-dev/postern/pkg/admissions/admit"
	"github.com/postern-dev/postern/pkg/router"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := app.Run(ctx, os.Args[1:], os.Stdout, os.Stderr, costCenter)
	stop()
	os.Exit(code)
}

// costCenter is the service: where it is served, what decides, when it is called.
func costCenter(admit.Deps) (router.AdmissionService, error) {
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
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: http.StatusInternalServerError, Message: err.Error()}}
	}
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Labels["cost-center"] == "" {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: http.StatusForbidden, Message: "a load balancer needs the label cost-center"}}
	}
	return &admissionv1.AdmissionResponse{Allowed: true}
}
