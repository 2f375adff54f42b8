package signers

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/pkg/admit"
)

// WrongType denies a request whose object has another type than want, with code
// 403. The message names the internal type of kube-apiserver, whose package has the
// name of the first part of the API group.
func WrongType(r *admit.Request, want string, got runtime.Object) error {
	name := "<nil>"
	if got != nil {
		kind := got.GetObjectKind().GroupVersionKind()
		pkg, _, _ := strings.Cut(kind.Group, ".")
		if pkg == "" {
			pkg = "core"
		}
		name = "*" + pkg + "." + kind.Kind
	}
	return admit.Forbidden(r, fmt.Errorf("expected type %s, got: %s", want, name))
}
