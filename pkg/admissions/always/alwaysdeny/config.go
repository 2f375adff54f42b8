package alwaysdeny

import (
	"slices"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// config is the plugin's configuration. kube-apiserver's plugin has none; here it
// has to be said how far the denial goes, because all of it stops a cluster.
type config struct {
	// Namespaces are those in which everything is denied.
	Namespaces []string `json:"namespaces"`
	// Everywhere denies everything in all namespaces and outside of them.
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
	return c, admit.CheckNamespaces("namespaces", c.Namespaces)
}

func (c config) denies(namespace string) bool {
	return c.Everywhere || slices.Contains(c.Namespaces, namespace)
}

// condition is the CEL for requests that may have to be denied, "" for all. The
// names are those of namespaces, so there is nothing in them to escape.
func (c config) condition() string {
	if c.Everywhere {
		return ""
	}
	names := admit.CELStrings(c.Namespaces)
	return "(request.resource.group == '' && request.resource.resource == 'namespaces' ? has(request.name) && request.name in " + names + " : " +
		"has(request.namespace) && request.namespace in " + names + ")"
}
