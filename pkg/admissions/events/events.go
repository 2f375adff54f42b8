// Package events is the family of plugins that limit events. Its plugin checks the group of the request, so a
// rule of one group does not match requests of the other.
package events

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/postern-dev/postern/pkg/admissions/events/eventratelimit"
	"github.com/postern-dev/postern/pkg/admit"
)

// Family lists the plugins in kube-apiserver's recommended order.
var Family = admit.Family{
	Name: "events",
	Plugins: []*admit.Plugin{
		eventratelimit.Plugin,
	},
	MatchPolicy: admissionregistrationv1.Exact,
}
