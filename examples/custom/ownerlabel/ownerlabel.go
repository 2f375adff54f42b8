// Package ownerlabel refuses new Deployments without the label owner.
package ownerlabel

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/postern-dev/postern/pkg/admit"
)

// Plugin is OwnerLabel.
var Plugin = &admit.Plugin{
	Name:  "OwnerLabel",
	Rules: []admit.Rule{admit.On("deployments", "CREATE").Of("apps")},
	New: func(admit.Deps, []byte) (admit.Handler, error) {
		return admit.Handler{Validate: admit.Typed(validate)}, nil
	},
}

func validate(_ context.Context, r *admit.Request, d, _ *appsv1.Deployment) error {
	if d.Labels["owner"] == "" {
		return admit.Forbidden(r, errors.New("the label owner is missing"))
	}
	return nil
}
