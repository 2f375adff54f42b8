package router

import (
	"reflect"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	kjson "sigs.k8s.io/json"
)

// envelope returns a review with the given members of its request.
func envelope(members string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u",` + members + `}}`
}

// TestPartsAreTheWhole compares decoding a body in parts with decoding the whole body.
func TestPartsAreTheWhole(t *testing.T) {
	for name, c := range map[string]struct {
		body  string
		parts bool
	}{
		"as an API server writes it": {envelope(`"object":{"a":{"b":["}\""]}},"oldObject":null,"dryRun":false,"options":{"kind":"CreateOptions"}`), true},
		"both objects":               {envelope(`"object":{"a":1},"oldObject":{"a":2}`), true},
		"only the old object":        {envelope(`"object":null,"oldObject":{"a":2}`), true},
		"no object":                  {envelope(`"name":"n"`), true},
		"spaces":                     {" {\n\"request\" : { \"object\" : { \"a\" : 1 } , \"uid\" : \"u\" } , \"kind\" : \"AdmissionReview\" } ", true},
		"objects that are none":      {envelope(`"object":"text","oldObject":[1,2]`), true},
		"fields of a newer API":      {envelope(`"new":{"object":{"a":1}},"object":{"b":2}`), true},
		"objects of somebody else":   {`{"object":{"a":1},"request":{"object":{"b":2}},"response":{"object":1}}`, true},
		"names in another case":      {envelope(`"Object":{"a":1},"OLDOBJECT":{"b":2}`), true},
		"a uid that is none":         {envelope(`"uid":5,"object":{"a":1}`), false},
		"an object twice":            {envelope(`"object":{"a":1},"object":{"b":2}`), false},
		"an object, then none":       {envelope(`"object":{"a":1},"object":null`), false},
		"a name with escapes":        {envelope(`"obj\u0065ct":{"a":1}`), false},
		"twice, once with escapes":   {envelope(`"object":{"a":1},"obj\u0065ct":{"b":2}`), false},
		"two requests":               {`{"request":{"object":{"a":1}},"request":{"uid":"u"}}`, false},
		"a request, then none":       {`{"request":{"object":{"a":1}},"request":null}`, false},
		"a request that is none":     {`{"request":[{"object":{"a":1}}]}`, false},
		"no request":                 {`{"request":null}`, false},
		"an empty object":            {`{}`, false},
		"not an object":              {`["request"]`, false},
		"null":                       {`null`, false},
		"nothing":                    {``, false},
		"a broken object":            {envelope(`"object":{"a":1,}`), false},
		"an object that never ends":  {strings.TrimSuffix(envelope(`"object":{"a":1}`), "}"), false},
		"more than one value":        {envelope(`"object":{"a":1}`) + `{}`, false},
		"too deep":                   {envelope(`"object":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000)), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := comparePartsToWhole(t, []byte(c.body)); got != c.parts {
				t.Errorf("Decoding in parts: got %t, want %t", got, c.parts)
			}
		})
	}
}

// comparePartsToWhole reports whether a body was decoded in parts. If so, it checks that decoding the whole body
// has the same result.
func comparePartsToWhole(t *testing.T, body []byte) bool {
	t.Helper()
	var got, want admissionv1.AdmissionReview
	if !decodeParts(body, &got) {
		return false
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &want); err != nil {
		t.Errorf("As a whole it is not decoded: %v", err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Got %+v, want %+v", got, want)
	}
	return true
}

// FuzzDecodeParts compares both ways of decoding for any body.
func FuzzDecodeParts(f *testing.F) {
	for _, members := range []string{`"object":{}`, `"object":{},"oldObject":[]`, `"object":1,"object":2`, `"oldObject":null,"obj\u0065ct":""`} {
		f.Add([]byte(envelope(members)))
	}
	f.Add([]byte(`{"request":{"object":{}},"request":{"oldObject":{}}}`))
	f.Fuzz(func(t *testing.T, body []byte) { comparePartsToWhole(t, body) })
}
