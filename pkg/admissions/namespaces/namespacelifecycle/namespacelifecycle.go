// Package namespacelifecycle keeps some namespaces from being deleted, and lets
// nothing be created in a namespace that is missing or on its way out. It is
// kube-apiserver's own plugin. See README.md.
package namespacelifecycle

import (
	"io"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"

	"github.com/postern-dev/postern/pkg/admissions/admit"
	"github.com/postern-dev/postern/pkg/admissions/admit/intree"
)

// Plugin is NamespaceLifecycle. Its rules are the handler's: which namespaces are
// immortal, and whether creations are looked at, is in the configuration.
//
// Upstream: k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle.
var Plugin = &admit.Plugin{
	Name: "NamespaceLifecycle",
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		c, err := load(data)
		if err != nil {
			return admit.Handler{}, err
		}
		factory := func(io.Reader) (admission.Interface, error) { return lifecycle.NewLifecycle(sets.New(c.immortal()...)) }
		// The plugin itself reads no configuration.
		h, err := intree.Plugin(lifecycle.PluginName, nil, factory).New(d, nil)
		h.Rules = c.rules()
		return h, err
	},
}

func (c config) rules() []admit.Rule {
	// The condition alone decides, so it is safe, and costs nothing, to refuse the
	// end of an immortal namespace also while we are away. The plugin would like to
	// hear of the end of the others too; see README.md for why it need not.
	rules := []admit.Rule{admit.On("namespaces", admissionv1.Delete).If(c.isImmortal())}
	if c.DeletionOnly {
		return rules
	}
	// All that is created is looked at, so this must not be in the way of what gets
	// us running.
	return append(rules, admit.Rule{
		Group: "*", Versions: []string{"*"}, Resources: []string{"*/*"}, Scope: admissionregistrationv1.NamespacedScope,
		Operations: []admissionv1.Operation{admissionv1.Create},
	}.OrIgnore())
}
