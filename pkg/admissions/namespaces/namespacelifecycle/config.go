package namespacelifecycle

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/internal/kinds/namespacenames"
	"github.com/postern-dev/postern/pkg/admit"
)

// config is the plugin's configuration. kube-apiserver's plugin has none.
type config struct {
	// ImmortalNamespaces cannot be deleted. They extend kube-apiserver's list.
	ImmortalNamespaces []string `json:"immortalNamespaces"`
	// DeletionOnly disables the checks of creations, which the API server's own
	// NamespaceLifecycle makes.
	DeletionOnly bool `json:"deletionOnly"`
}

func load(data []byte) (config, error) {
	c, err := admit.LoadConfig[config](data)
	if err != nil {
		return c, err
	}
	return c, namespacenames.CheckNames("immortalNamespaces", c.ImmortalNamespaces)
}

// immortal returns the sorted names of all namespaces that cannot be deleted.
func (c config) immortal() []string {
	names := append(alwaysImmortal(), c.ImmortalNamespaces...)
	slices.Sort(names)
	return slices.Compact(names)
}

// alwaysImmortal are the names in kube-apiserver's list.
func alwaysImmortal() []string {
	return []string{metav1.NamespaceDefault, metav1.NamespacePublic, metav1.NamespaceSystem}
}

// isImmortal is the CEL for requests that name an immortal namespace.
func (c config) isImmortal() string {
	return "has(request.name) && request.name in " + admit.CELStrings(c.immortal())
}
