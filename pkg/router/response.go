package router

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
)

// finish turns the response of an AdmitFunc into the response that is sent. It
// copies the response, so that a response that an AdmitFunc returns twice by
// mistake never has the UID of another request. A denial of a component loses its Retry-After, see rejection.backsOff.
func finish(resp *admissionv1.AdmissionResponse, uid types.UID, phase string, isComponent bool) (*admissionv1.AdmissionResponse, error) {
	if resp == nil {
		return nil, fmt.Errorf("the admission service returned no response")
	}
	if !resp.Allowed && resp.Result != nil && resp.Result.Code >= http.StatusInternalServerError {
		code := int(resp.Result.Code)
		if http.StatusText(code) == "" {
			code = http.StatusInternalServerError
		}
		return nil, &Failure{code, resp.Result.Message}
	}
	out := *resp
	out.UID = uid
	if isComponent && !resp.Allowed && resp.Result != nil && resp.Result.Details != nil {
		out.Result = resp.Result.DeepCopy()
		out.Result.Details.RetryAfterSeconds = 0
	}
	out.Warnings = cleanWarnings(resp.Warnings)
	out.Patch, out.PatchType = nil, nil
	if p := bytes.TrimSpace(resp.Patch); resp.Allowed && !isEmptyPatch(p) {
		if phase == PhaseValidate {
			return nil, fmt.Errorf("the validating half of the admission service returned a patch")
		}
		jsonPatch := admissionv1.PatchTypeJSONPatch
		out.Patch, out.PatchType = p, &jsonPatch
	}
	return &out, nil
}

// encodeReview appends the JSON of the review with a response to out. Most responses have no more than a patch, whose
// base64 json.Marshal would make, check and copy.
func encodeReview(out []byte, resp *admissionv1.AdmissionResponse) ([]byte, error) {
	if resp.Result != nil || len(resp.Warnings) > 0 || len(resp.AuditAnnotations) > 0 {
		data, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: reviewType, Response: resp})
		return append(out, data...), err
	}
	uid, err := json.Marshal(resp.UID)
	if err != nil {
		return nil, err
	}
	out = append(append(append(out, reviewStart...), uid...), `,"allowed":`...)
	out = strconv.AppendBool(out, resp.Allowed)
	if len(resp.Patch) > 0 {
		out = base64.StdEncoding.AppendEncode(append(out, `,"patch":"`...), resp.Patch)
		out = append(append(append(out, `","patchType":"`...), *resp.PatchType...), '"')
	}
	return append(out, "}}"...), nil
}

const reviewStart = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":`

// isEmptyPatch reports whether a patch is empty. The patch "null" is empty too: a
// nil slice of operations encodes to it, and the API server refuses it.
func isEmptyPatch(p []byte) bool {
	return len(p) == 0 || string(p) == "null" || string(p) == "[]"
}

// cleanWarnings splits warnings into lines and removes control characters. The API
// server sends each warning as one HTTP header, and drops warnings that are not
// valid in a header.
func cleanWarnings(warnings []string) []string {
	var out []string
	for _, w := range warnings {
		for line := range strings.FieldsFuncSeq(w, func(r rune) bool { return r == '\n' || r == '\r' }) {
			line = strings.Map(func(r rune) rune {
				switch {
				case r == '\t':
					return ' '
				case unicode.IsControl(r), r == unicode.ReplacementChar:
					return -1
				}
				return r
			}, line)
			if line = strings.TrimSpace(line); line != "" {
				out = append(out, line)
			}
		}
	}
	return out
}
