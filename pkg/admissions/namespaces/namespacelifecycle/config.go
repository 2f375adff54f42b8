package namespacelifecycle

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// config is the plugin's configuration. kube-apiserver's plugin has none.
type config struct {
	// ImmortalNamespaces may not be deleted, besides those of kube-apiserver.
	ImmortalNamespaces []string `json:"immortalNamespaces"`
	// DeletionOnly leaves creations to the API server's own NamespaceLifecycle.
	DeletionOnly bool `json:"deletionOnly"`
}

func load(data []byte) (config, error) {
	c, err := admit.LoadConfig[config](data)
	if err != nil {
		return c, err
	}
	return c, admit.CheckNamespaces("immortalNamespaces", c.ImmortalNamespaces)
}

// immortal returns the names of all namespaces that may not be deleted, in order.
func (c config) immortal() []string {
	names := append([]string{metav1.NamespaceDefault, metav1.NamespacePublic, metav1.NamespaceSystem}, c.ImmortalNamespaces...)
	slices.Sort(names)
	return slices.Compact(names)
}

// isImmortal is the CEL for requests that name one. The names are those of
// namespaces, so there is nothing in them to escape.
func (c config) isImmortal() string {
	return "has(request.name) && request.name in " + admit.CELStrings(c.immortal())
}
