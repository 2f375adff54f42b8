package router

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// canaryService is the name of the canary among the services. The paths of all canaries are below it.
const canaryService = "/canary"

// isCanary reports whether the path of a service is that of a canary, of this router or another.
func isCanary(path string) bool { return strings.HasPrefix(path, canaryService+"/") }

// CanaryPath returns the path of this router's canary, which no other router has. Its validating half denies every request
// with CanaryAnswer, which shows that the API server can call this process.
func (r *Router) CanaryPath() string { return r.canary }

// CanaryAnswer returns the message with which the canary denies a request for an object with the name.
func CanaryAnswer(name string) string { return "Postern was called for " + name }

// serveCanary adds the canary. Its metrics do not name its path, which each process has for itself.
func (r *Router) serveCanary() {
	r.canary = canaryService + "/" + strings.ToLower(rand.Text())
	r.halves[r.canary+ValidatePath] = r.newHalf(AdmissionService{Path: canaryService}, PhaseValidate, answerCanary)
}

// answerCanary is the AdmitFunc of the canary's path.
func answerCanary(_ context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{
		// Not 403: somebody may count what Postern's service account is forbidden.
		Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Message: CanaryAnswer(ar.Name),
	}}
}

// passOn answers a call of another replica's canary. The API server repeats the call at once, up to ten times, and does so on
// a new connection, which may lead to the other replica.
func passOn(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	w.Header().Set("Retry-After", "0")
	http.Error(w, "this is the canary of another replica", http.StatusServiceUnavailable)
}
