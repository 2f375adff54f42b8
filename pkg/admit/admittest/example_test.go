package admittest_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

// sized refuses a Namespace without the label size.
var sized = &admit.Plugin{
	Name:  "Sized",
	Rules: []admit.Rule{admit.On("namespaces", "CREATE")},
	New: func(admit.Deps, []byte) (admit.Handler, error) {
		return admit.Handler{Validate: admit.Typed(func(_ context.Context, r *admit.Request, ns, _ *corev1.Namespace) error {
			if ns.Labels["size"] == "" {
				return admit.Forbidden(r, errors.New("the label size is missing"))
			}
			return nil
		})}, nil
	},
}

// A test of a plugin calls Run, which reads cases from the files of the folder testdata. This one reads and runs a case itself.
func Example() {
	for _, text := range []string{`# A namespace has a size.
request: {operation: CREATE, object: {apiVersion: v1, kind: Namespace, metadata: {name: shop}}}
want: {allowed: false, message: 'namespaces "shop" is forbidden: the label size is missing'}
`, `# The size is not compared with anything.
request: {operation: CREATE, object: {apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {size: huge}}}}
want: {allowed: false, message: 'namespaces "shop" is forbidden: huge is too large'}
`} {
		c, err := admittest.Parse([]byte(text))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%q\n", c.Check(context.Background(), sized))
	}
	// Output:
	// []
	// ["Got allowed true, want false"]
}
