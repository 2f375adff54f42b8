package footprint

import "reflect"

const (
	// StoredBytes is what an object may have that an API server can store: etcd's
	// limit on a request (--max-request-bytes) as etcd has it by default.
	StoredBytes = 3 << 19

	// BytesPerProtobuf is the most memory that a valid object of a built-in kind takes
	// for each byte of protobuf, which such objects are stored as. An empty item of a
	// list has the tags of the fields that are always written, and what validation
	// asks for. TestMemoryOfProtobuf looks at all types of k8s.io/api.
	BytesPerProtobuf = 32

	// BytesPerJSON is the most memory that an object without a type takes for each
	// byte of JSON, which custom resources are stored as. An object of one member is
	// the worst, {"":0} with a comma: 352 bytes for 7.
	BytesPerJSON = 53
)

// Limit returns the largest footprint of an object of type t, or without one, that an
// API server could store. A larger one is refused in any case, and need not be decoded
// to do that.
func Limit(t reflect.Type) int64 {
	if t == nil {
		return StoredBytes * BytesPerJSON
	}
	return StoredBytes * BytesPerProtobuf
}
