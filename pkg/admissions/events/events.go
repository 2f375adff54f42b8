// Package events is the family that gates events. Its plugin asks in which group a
// request came, so a rule of one group gets no requests of the other.
package events

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/postern-dev/postern/pkg/admissions/admit"
	"github.com/postern-dev/postern/pkg/admissions/events/eventratelimit"
)

// Family lists the plugins in kube-apiserver's recommended order.
var Family = admit.Family{
	Name: "events",
	Plugins: []*admit.Plugin{
		eventratelimit.Plugin,
	},
	MatchPolicy: admissionregistrationv1.Exact,
}
