package patch

import (
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/internal/jsontype"
	"github.com/postern-dev/postern/internal/reuse"
)

// Copy returns a copy of an object, to be compared with the object after plugins have changed it.
func Copy(obj runtime.Object) runtime.Object {
	if pool := poolOf(obj); pool != nil {
		return pool.copy(obj)
	}
	return obj.DeepCopyObject()
}

// Recycle keeps the memory of an object that Copy returned, for the next Copy of an object of its type. The caller must
// not use the object afterwards. raw is the document that the original was decoded from. The memory for a large document
// is not kept. A copy of a pod has dozens of variables, which live as long as one request.
func Recycle(obj runtime.Object, raw []byte) {
	if obj == nil || len(raw) > recycledBytes {
		return
	}
	if pool := poolOf(obj); pool != nil {
		reuse.Unused(obj)
		pool.unused.Put(obj)
	}
}

// recycledBytes is the length of a document up to which memory is kept. No limit counts that memory, and
// the garbage collector frees it.
const recycledBytes = 64 << 10

// pool has the copies of one type whose memory is kept.
type pool struct {
	typ    *jsontype.Type
	unused sync.Pool // of pointers to the type
}

// pools memoizes poolOf, as jsontype memoizes its types. The value of a type that is not copyable is nil.
var pools sync.Map // map[reflect.Type]*pool

// poolOf returns the pool for an object, or nil if its type is not copyable.
func poolOf(obj runtime.Object) *pool {
	t := reflect.TypeOf(obj)
	if known, ok := pools.Load(t); ok {
		return known.(*pool) // Nothing else is stored.
	}
	var p *pool
	if t != nil && t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct {
		if typ := jsontype.Of(t.Elem()); isCopyable(typ, map[*jsontype.Type]bool{}) {
			p = &pool{typ: typ}
		}
	}
	known, _ := pools.LoadOrStore(t, p)
	return known.(*pool) // Nothing else is stored.
}

func (p *pool) copy(obj runtime.Object) runtime.Object {
	to, ok := p.unused.Get().(runtime.Object)
	if !ok {
		to, _ = reflect.TypeAssert[runtime.Object](reflect.New(p.typ.Go))
	}
	copyTo(p.typ, reflect.ValueOf(to).UnsafePointer(), reflect.ValueOf(obj).UnsafePointer())
	return to
}
