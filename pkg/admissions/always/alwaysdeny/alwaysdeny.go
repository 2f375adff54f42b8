// Package alwaysdeny denies every change, everywhere or in the namespaces that are
// to be frozen. See README.md.
package alwaysdeny

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// Plugin is AlwaysDeny. Its rule is the handler's: the condition in it comes from
// the configuration.
//
// Upstream: plugin/pkg/admission/deny.
var Plugin = &admit.Plugin{
	Name: "AlwaysDeny",
	New: func(_ admit.Deps, data []byte) (admit.Handler, error) {
		c, err := load(data)
		if err != nil {
			return admit.Handler{}, err
		}
		rule := admit.Rule{
			Group: "*", Versions: []string{"*"}, Resources: []string{"*/*"},
			Operations: []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect},
		}
		return admit.Handler{Validate: c.validate, Rules: []admit.Rule{rule.If(c.condition())}}, nil
	},
}

func (c config) validate(_ context.Context, r *admit.Request) error {
	if c.denies(namespaceOf(r)) {
		return admit.Forbidden(r, errors.New("admission control is denying all modifications"))
	}
	return nil
}

// namespaceOf returns the namespace that a request changes something in. That of a
// Namespace is its own name, which the request says in different fields: not in
// namespace where the name was generated, not in name where many are deleted.
func namespaceOf(r *admit.Request) string {
	if r.Resource.Group != "" || r.Resource.Resource != "namespaces" {
		return r.Namespace
	}
	if r.Name != "" {
		return r.Name
	}
	for _, obj := range []runtime.Object{r.Object, r.OldObject} {
		if m, err := meta.Accessor(obj); err == nil && m.GetName() != "" {
			return m.GetName()
		}
	}
	return r.Namespace
}
