package router

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestCall checks what a call in the process makes of the answers of an AdmitFunc.
func TestCall(t *testing.T) {
	for name, tc := range map[string]struct {
		phase   string
		admit   AdmitFunc
		object  string
		want    admissionv1.AdmissionResponse // Without the uid, and with the code and the message of Result.
		failure Failure
	}{
		"no half": {phase: PhaseValidate, want: admissionv1.AdmissionResponse{Allowed: true}},
		"a patch and warnings": {
			phase: PhaseMutate,
			admit: always(admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(" [1] "), Warnings: []string{"a\nb"}}),
			want:  admissionv1.AdmissionResponse{Allowed: true, Patch: []byte("[1]"), Warnings: []string{"a", "b"}},
		},
		"a denial":                 {phase: PhaseMutate, admit: always(*denied(403, "no")), want: *denied(403, "no")},
		"a failure":                {phase: PhaseMutate, admit: always(*denied(503, "away")), failure: Failure{503, "away"}},
		"no response":              {phase: PhaseMutate, admit: func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return nil }, failure: Failure{500, "the admission service returned no response"}},
		"a patch of the wrong one": {phase: PhaseValidate, admit: always(admissionv1.AdmissionResponse{Allowed: true, Patch: []byte("[1]")}), failure: Failure{500, "the validating half of the admission service returned a patch"}},
		"a panic": {
			phase: PhaseValidate, want: *denied(500, "the admission service panicked, see its log"),
			admit: func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { panic("oh") },
		},
		"an object that nobody can store": {
			phase: PhaseMutate, object: `{"a":"` + strings.Repeat("x", maxObjectBytes) + `"}`, admit: always(admissionv1.AdmissionResponse{Allowed: true}),
			want: *denied(413, "request.object has 12582920 bytes, more than the 12582912 that are allowed"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := AdmissionService{Path: "/test"}
			if tc.phase == PhaseMutate {
				s.Mutate = tc.admit
			} else {
				s.Validate = tc.admit
			}
			got, err := s.Call(t.Context(), tc.phase, &admissionv1.AdmissionRequest{UID: "u", Object: runtime.RawExtension{Raw: []byte(tc.object)}})
			if err != nil {
				var failure *Failure
				if !errors.As(err, &failure) || *failure != tc.failure {
					t.Errorf("Got error %#v, want %v", err, tc.failure)
				}
				return
			}
			if tc.failure.Code != 0 || got.UID != "u" || got.Allowed != tc.want.Allowed || string(got.Patch) != string(tc.want.Patch) || strings.Join(got.Warnings, ",") != strings.Join(tc.want.Warnings, ",") {
				t.Errorf("Got %+v, want %+v", got, tc.want)
			}
			if want := tc.want.Result; want != nil && (got.Result == nil || got.Result.Code != want.Code || got.Result.Message != want.Message) {
				t.Errorf("Got the status %+v, want %+v", got.Result, want)
			}
		})
	}
}

func always(resp admissionv1.AdmissionResponse) AdmitFunc {
	return func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return &resp }
}

func denied(code int32, message string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: code, Message: message}}
}
