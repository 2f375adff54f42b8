package alwaysdeny

import (
	"slices"

	"github.com/postern-dev/postern/internal/kinds/namespacenames"
	"github.com/postern-dev/postern/pkg/admit"
)

// config is the plugin's configuration. kube-apiserver's plugin has none. Here the
// scope of the denial is required, because denying everything stops a cluster.
type config struct {
	// Namespaces are the namespaces in which every change is denied.
	Namespaces []string `json:"namespaces"`
	// Everywhere denies every change, of cluster-scoped objects too.
	Everywhere bool `json:"everywhere"`
}

func load(data []byte) (config, error) {
	c, err := admit.LoadConfig[config](data)
	if err != nil {
		return c, err
	}
	switch {
	case c.Everywhere && len(c.Namespaces) > 0:
		return c, admit.InvalidField("everywhere", "it cannot be true where namespaces are listed")
	case !c.Everywhere && len(c.Namespaces) == 0:
		return c, admit.InvalidField("namespaces", "list the namespaces in which everything is to be denied, or say everywhere: true")
	}
	return c, namespacenames.CheckNames("namespaces", c.Namespaces)
}

func (c config) denies(namespace string) bool {
	return c.Everywhere || slices.Contains(c.Namespaces, namespace)
}

// condition is the CEL for requests that the plugin may deny, or "" for all
// requests.
func (c config) condition() string {
	if c.Everywhere {
		return ""
	}
	names := admit.CELStrings(c.Namespaces)
	return "(request.resource.group == '' && request.resource.resource == 'namespaces' ? has(request.name) && request.name in " + names + " : " +
		"has(request.namespace) && request.namespace in " + names + ")"
}
