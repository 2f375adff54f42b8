// Package denyserviceexternalips denies external IPs on services, because a user could intercept the traffic
// of others with them. See README.md.
package denyserviceexternalips

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/postern-dev/postern/pkg/admit"
)

// Plugin is DenyServiceExternalIPs.
//
// Upstream: plugin/pkg/admission/network/denyserviceexternalips.
var Plugin = &admit.Plugin{
	Name:         "DenyServiceExternalIPs",
	Rules:        []admit.Rule{admit.On("services", admissionv1.Create, admissionv1.Update).In(admit.Validating).If(newExternalIPs())},
	Configurable: true,
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		allowed, err := load(data)
		if err != nil {
			return admit.Handler{}, err
		}
		p := &plugin{allowed}
		// The API server's own plugin has no allow list, so it denies also what this one allows.
		return admit.Handler{Validate: admit.Typed(p.validate), Warnings: d.Redundant("DenyServiceExternalIPs", true)}, nil
	},
}

// newExternalIPs returns the CEL expression for services with a new external IP, and for services with more
// external IPs than a condition may read.
func newExternalIPs() string {
	now, before := admit.CELList("object.spec.externalIPs"), admit.CELList("oldObject.spec.externalIPs")
	return now + " != [] && " + now + " != " + before + " && " + admit.CELNew(now, before)
}

type plugin struct {
	allowed allowList
}

func (p *plugin) validate(_ context.Context, r *admit.Request, service, old *corev1.Service) error {
	had := sets.New[string]()
	if old != nil {
		had.Insert(old.Spec.ExternalIPs...)
	}
	allowed := p.allowed.of(r)
	for _, ip := range service.Spec.ExternalIPs {
		// Upstream: addresses are compared as strings, so another spelling is another address.
		if had.Has(ip) || allowed.covers(ip) {
			continue
		}
		err := errors.New("Use of external IPs is denied by admission control") //nolint:staticcheck // kube-apiserver's words
		if len(p.allowed) > 0 {
			err = fmt.Errorf("%w: %s is not among those that are allowed", err, ip)
		}
		return admit.Forbidden(r, err)
	}
	return nil
}
