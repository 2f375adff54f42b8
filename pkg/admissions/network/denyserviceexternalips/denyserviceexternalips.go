// Package denyserviceexternalips keeps services from getting external IPs, by
// which a user could take over the traffic of others. See README.md.
package denyserviceexternalips

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// Plugin is DenyServiceExternalIPs.
//
// Upstream: plugin/pkg/admission/network/denyserviceexternalips.
var Plugin = &admit.Plugin{
	Name:  "DenyServiceExternalIPs",
	Rules: []admit.Rule{admit.On("services", admissionv1.Create, admissionv1.Update).In(admit.Validating).If(newExternalIPs())},
	New: func(_ admit.Deps, data []byte) (admit.Handler, error) {
		allowed, err := load(data)
		if err != nil {
			return admit.Handler{}, err
		}
		p := &plugin{allowed}
		return admit.Handler{Validate: admit.Typed(p.validate)}, nil
	},
}

// newExternalIPs is the CEL for all that is denied where nothing is allowed. What
// comparing two long lists would cost is more than the API server spends on a
// condition, so it calls for these.
func newExternalIPs() string {
	now, before := admit.CELList("object.spec.externalIPs"), admit.CELList("oldObject.spec.externalIPs")
	return now + " != [] && " + now + " != " + before + " && " +
		"(size(" + now + ") * size(" + before + ") > 100000 || !" + now + ".all(ip, ip in " + before + "))"
}

type plugin struct {
	allowed allowList
}

func (p *plugin) validate(_ context.Context, r *admit.Request, service, old *corev1.Service) error {
	var had []string
	if old != nil {
		had = old.Spec.ExternalIPs
	}
	for _, ip := range service.Spec.ExternalIPs {
		// Upstream: the texts are compared, so another form of an address is another
		// address.
		if slices.Contains(had, ip) || p.allowed.covers(r, ip) {
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
