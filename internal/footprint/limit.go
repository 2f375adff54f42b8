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

// Limit returns the largest footprint of a storable object of type t, or of a storable untyped object if t is nil.
// A larger object can be denied without decoding.
func Limit(t reflect.Type) int64 {
	if t == nil {
		return StoredBytes * BytesPerJSON
	}
	return StoredBytes * BytesPerProtobuf
}
