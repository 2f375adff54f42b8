package footprint

import "reflect"

const (
	// StoredBytes is the size limit of a stored object: etcd's default limit on a request (--max-request-bytes).
	StoredBytes = 3 << 19

	// BytesPerProtobuf is the maximum memory of a valid object of a built-in kind per byte of its protobuf
	// encoding in etcd. An empty item of a list has the tags of the fields that are always written, and the fields
	// that validation requires. TestMemoryOfProtobuf checks all types of k8s.io/api.
	BytesPerProtobuf = 32

	// BytesPerJSON is the maximum memory of an untyped object per byte of JSON, the encoding of custom resources
	// in etcd. The worst case is an object with one member, {"":0} with a comma: 352 bytes for 7.
	BytesPerJSON = 53
)

// WithSpare returns the memory that a footprint of n bytes takes with the spare capacity that decoders leave in lists. It is up
// to half as much again.
func WithSpare(n int64) int64 { return n + n/2 }

// Limit returns the largest footprint of a storable object of type t, or of a storable untyped object if t is nil.
// A larger object can be denied without decoding.
func Limit(t reflect.Type) int64 {
	if t == nil {
		return StoredBytes * BytesPerJSON
	}
	return StoredBytes * BytesPerProtobuf
}
