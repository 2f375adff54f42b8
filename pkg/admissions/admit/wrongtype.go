package admit

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// WrongType is a no to an object of another kind, for plugins that say so with a
// 403. It names the type that the object has inside kube-apiserver, where a
// package is called after the first part of its group.
func WrongType(r *Request, want string, got runtime.Object) error {
	name := "<nil>"
	if got != nil {
		kind := got.GetObjectKind().GroupVersionKind()
		pkg, _, _ := strings.Cut(kind.Group, ".")
		if pkg == "" {
			pkg = "core"
		}
		name = "*" + pkg + "." + kind.Kind
	}
	return Forbidden(r, fmt.Errorf("expected type %s, got: %s", want, name))
}
