// Package alwaysdeny denies every change, either everywhere or in the configured
// namespaces. See README.md.
package alwaysdeny

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/postern-dev/postern/pkg/admit"
)

// Plugin is AlwaysDeny. The handler returns the rule, because the configuration
// determines its condition.
//
// Upstream: plugin/pkg/admission/deny.
var Plugin = &admit.Plugin{
	Name:         "AlwaysDeny",
	Configurable: true,
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		c, err := load(data)
		if err != nil {
			return admit.Handler{}, err
		}
		rule := admit.Rule{
			Group: "*", Versions: []string{"*"}, Resources: []string{"*/*"},
			Operations: []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect},
		}
		return admit.Handler{Validate: c.validate, Rules: []admit.Rule{rule.If(c.condition())}, Warnings: d.Redundant("AlwaysDeny", true)}, nil
	},
}

func (c config) validate(_ context.Context, r *admit.Request) error {
	if c.denies(namespaceOf(r)) {
		return admit.Forbidden(r, errors.New("admission control is denying all modifications"))
	}
	return nil
}

// namespaceOf returns the namespace that a request changes. A Namespace object
// belongs to the namespace of its own name. The API server leaves the namespace of
// such a request empty if the name was generated.
func namespaceOf(r *admit.Request) string {
	if r.Resource.Group == "" && r.Resource.Resource == "namespaces" {
		return r.Name
	}
	return r.Namespace
}
