package router

import (
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/postern-dev/postern/internal/rawjson"
)

const (
	// storedBytes is the size of the largest object that an API server can store. It
	// is etcd's limit on a request (--max-request-bytes). kube-apiserver has no flag
	// to raise it.
	storedBytes = 3 << 19

	// maxValues is how many JSON values an object may have. An object of a built-in
	// kind is stored as protobuf, a custom resource as JSON. Both need at least two
	// bytes for a value: a tag and a length in protobuf, a digit and a comma in JSON.
	// Only null needs no bytes in protobuf, and it follows a value that does. An
	// object that can be stored therefore has no more values than bytes.
	maxValues = storedBytes

	// textFactor is how many bytes of memory a service without Weigh needs for each
	// byte of an object. Decoding ordinary pods of 3 MiB into the types of k8s.io/api
	// leaves 1.5 bytes for each byte and produces 5 bytes of garbage (TestWeight in
	// package admit).
	textFactor = 8

	// plainBytes is the bound on the memory of a request up to which its objects are decoded with the envelope. Services
	// check larger objects first.
	plainBytes = 16 << 20
)

// weight returns how many bytes of memory deciding a request needs, in addition to
// its text.
func (h *half) weight(ar *admissionv1.AdmissionRequest) int64 {
	if h.objects.Weigh != nil {
		return h.objects.Weigh(ar)
	}
	return textFactor * int64(len(ar.Object.Raw)+len(ar.OldObject.Raw))
}

// denyOutsized denies a request with an object that no API server can store.
// Otherwise it returns nil. Three bytes of text can decode into a kilobyte of typed
// values, so decoding such an object could use up all memory. The request is denied,
// not failed, because repeating it has no use.
func denyOutsized(ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	for _, o := range []struct {
		field string
		text  []byte
	}{{"object", ar.Object.Raw}, {"oldObject", ar.OldObject.Raw}} {
		// The old object is stored already, and its owner must be able to shorten it.
		if n := len(o.text); n > maxObjectBytes && o.field == "object" {
			return outsized("request.%s has %d bytes, more than the %d that are allowed", o.field, n, maxObjectBytes)
		}
		// A value has at least one byte, and one byte that separates it from the next
		// value.
		if len(o.text) <= 2*maxValues {
			continue
		}
		if n := rawjson.Of(o.text).Count(); n > maxValues {
			return outsized("request.%s has %d JSON values, and no object that can be stored has more than %d", o.field, n, maxValues)
		}
	}
	return nil
}

func outsized(format string, args ...any) *admissionv1.AdmissionResponse {
	return tooLarge(format, args...).denial()
}
