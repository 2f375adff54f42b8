// Package namespacelifecycle protects some namespaces from deletion, and denies
// creations in a namespace that is missing or terminating. It wraps kube-apiserver's
// own plugin. See README.md.
package namespacelifecycle

import (
	"io"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
	"github.com/postern-dev/postern/pkg/admit/intree"
)

// Plugin is NamespaceLifecycle. The handler returns the rules, because the
// configuration determines the immortal namespaces and whether creations are
// checked.
//
// Upstream: k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle.
var Plugin = &admit.Plugin{
	Name:         "NamespaceLifecycle",
	Configurable: true,
	Access:       access.Rules{access.Lookup("", "namespaces")},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		c, err := load(data)
		if err != nil {
			return admit.Handler{}, err
		}
		factory := func(io.Reader) (admission.Interface, error) { return lifecycle.NewLifecycle(sets.New(c.immortal()...)) }
		// The plugin itself reads no configuration.
		h, err := intree.Plugin(lifecycle.PluginName, nil, factory).New(d, nil)
		h.Rules = c.rules()
		h.Warnings = d.Redundant("NamespaceLifecycle", len(c.immortal()) == len(alwaysImmortal()))
		return h, err
	},
}

func (c config) rules() []admit.Rule {
	// The condition alone decides, so this rule may fail closed: while Postern is
	// down, only the deletion of an immortal namespace is denied. Upstream also
	// handles the deletion of other namespaces. README.md says why Postern need not.
	rules := []admit.Rule{admit.On("namespaces", admissionv1.Delete).If(c.isImmortal())}
	if c.DeletionOnly {
		return rules
	}
	// This rule sees every creation, including the objects that start Postern, so
	// its failure policy is Ignore.
	return append(rules, admit.Rule{
		Group: "*", Versions: []string{"*"}, Resources: []string{"*/*"}, Scope: admissionregistrationv1.NamespacedScope,
		Operations: []admissionv1.Operation{admissionv1.Create},
	}.OrIgnore())
}
