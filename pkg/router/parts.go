package router

import (
	"bytes"
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"
	kjson "sigs.k8s.io/json"

	"github.com/postern-dev/postern/pkg/router/rawjson"
)

// decodeParts decodes a review without decoding its objects, which are most of its
// text: a decoder would read them three times to find their ends. The objects share
// the memory of body. decodeParts returns false if body is not a review in the form
// that an API server writes. The caller then decodes the whole body.
func decodeParts(body []byte, into *admissionv1.AdmissionReview) bool {
	review := rawjson.Of(body)
	if !json.Valid(body) || !review.IsObject() {
		return false
	}
	var p parts
	p.envelope.Grow(1 << 10)
	p.add(review, func(name, value rawjson.Value) {
		if string(name) == `"request"` && value.IsObject() {
			p.requests++
			p.add(value, p.member)
			return
		}
		p.envelope.Write(value)
	})
	if p.requests != 1 || kjson.UnmarshalCaseSensitivePreserveInts(p.envelope.Bytes(), into) != nil {
		return false
	}
	r := into.Request
	if p.twice || r == nil || r.Object.Raw != nil || r.OldObject.Raw != nil {
		return false
	}
	r.Object.Raw, r.OldObject.Raw = p.object, p.oldObject
	return true
}

// parts are a review without the objects of its request, and the objects.
type parts struct {
	envelope          bytes.Buffer
	object, oldObject rawjson.Value
	requests          int
	twice             bool
}

// add writes an object to the envelope. It calls write for each value.
func (p *parts) add(object rawjson.Value, write func(name, value rawjson.Value)) {
	separator := byte('{')
	for name, value := range object.Members() {
		p.envelope.WriteByte(separator)
		separator = ','
		p.envelope.Write(name)
		p.envelope.WriteByte(':')
		write(name, value)
	}
	if separator == '{' {
		p.envelope.WriteByte(separator)
	}
	p.envelope.WriteByte('}')
}

// member writes a member of the request. It stores object and oldObject separately
// and writes null for them.
func (p *parts) member(name, value rawjson.Value) {
	switch string(name) {
	case `"object"`:
		p.take(&p.object, value)
	case `"oldObject"`:
		p.take(&p.oldObject, value)
	default:
		p.envelope.Write(value)
	}
}

func (p *parts) take(into *rawjson.Value, value rawjson.Value) {
	p.twice = p.twice || *into != nil
	if !value.IsNull() {
		*into = value
	}
	p.envelope.WriteString("null")
}
