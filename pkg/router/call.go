package router

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/klog/v2"
)

// Failure is the error of a request that could not be decided. The failure policy of the webhook applies.
type Failure struct {
	// Code is the HTTP status of the answer, 500 or more, and Cause its text.
	Code  int
	Cause string
}

// Error implements error.
func (e *Failure) Error() string { return e.Cause }

// Call decides a request by one half of the service in this process. The phase is PhaseMutate or PhaseValidate. The response is
// what a Router sends: see AdmitFunc. An error is a *Failure. Unlike a Router, Call has no limits and no metrics, keeps
// RetryAfterSeconds for everybody, and waits for an AdmitFunc that ignores its context.
func (s AdmissionService) Call(ctx context.Context, phase string, ar *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	decide := s.Validate
	if phase == PhaseMutate {
		decide = s.Mutate
	}
	if decide == nil {
		decide = admitAll
	}
	resp := denyOutsized(ar)
	if resp == nil {
		var rej *rejection
		if resp, rej = recovered(ctx, decide, ar); rej != nil {
			rej.uid = ar.UID
			return rej.denial(), nil
		}
	}
	resp, err := finish(resp, ar.UID, phase, false)
	if _, ok := errors.AsType[*Failure](err); err != nil && !ok {
		err = &Failure{http.StatusInternalServerError, err.Error()}
	}
	return resp, err
}

// recovered calls an AdmitFunc. It denies a request with which the AdmitFunc panics: see rejection.isChosen.
func recovered(ctx context.Context, decide AdmitFunc, ar *admissionv1.AdmissionRequest) (resp *admissionv1.AdmissionResponse, rej *rejection) {
	defer func() {
		if p := recover(); p != nil {
			klog.FromContext(ctx).Error(shortError(fmt.Errorf("panic: %v", p)), "Admission service panicked", "stack", string(debug.Stack()))
			rej = panicked()
		}
	}()
	return decide(ctx, ar), nil
}

func panicked() *rejection {
	return &rejection{code: http.StatusInternalServerError, reason: "panic", sentence: "the admission service panicked, see its log", isChosen: true}
}
