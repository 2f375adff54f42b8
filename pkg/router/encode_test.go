package router

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestEncodeReview compares the answer with that of json.Marshal.
func TestEncodeReview(t *testing.T) {
	patchType := admissionv1.PatchTypeJSONPatch
	for name, resp := range map[string]*admissionv1.AdmissionResponse{
		"allowed":        {UID: "u", Allowed: true},
		"denied":         {UID: "u", Result: &metav1.Status{Message: "no <b>", Code: 403}},
		"not allowed":    {UID: "u"},
		"without uid":    {Allowed: true},
		"a strange uid":  {UID: "\"\\\n<\u2028\xff é", Allowed: true},
		"a patch":        {UID: "u", Allowed: true, Patch: []byte(`[{"op":"add","path":"/x","value":"\u00e9<>?"}]`), PatchType: &patchType},
		"a warning":      {UID: "u", Allowed: true, Warnings: []string{"w"}},
		"an annotation":  {UID: "u", Allowed: true, AuditAnnotations: map[string]string{"a": "b"}},
		"all of them":    {UID: "u", Allowed: true, Warnings: []string{"w"}, AuditAnnotations: map[string]string{"a": "b"}, Patch: []byte(`[]`), PatchType: &patchType},
		"an empty patch": {UID: "u", Allowed: true, Patch: []byte{}},
	} {
		got, err := encodeReview(nil, resp)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: reviewType, Response: resp})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s: (-json.Marshal +encodeReview):\n%s", name, diff)
		}
	}
}
