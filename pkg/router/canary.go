package router

import (
	"context"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CanaryPath is the path of the canary. Its validating half denies every request with CanaryAnswer, which shows that the
// API server can call Postern.
const CanaryPath = "/canary"

// CanaryAnswer returns the message with which the canary denies a request for an object with the name.
func CanaryAnswer(name string) string { return "Postern was called for " + name }

// answerCanary is the AdmitFunc of the canary's path.
func answerCanary(_ context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{
		// Not 403: somebody may count what Postern's service account is forbidden.
		Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Message: CanaryAnswer(ar.Name),
	}}
}
