// Package pods is the family that gates pods: one mutating and one validating
// call for a pod, whatever plugins are enabled.
package pods

import (
	"github.com/postern-dev/postern/pkg/admissions/admit"
	"github.com/postern-dev/postern/pkg/admissions/pods/alwayspullimages"
)

// Family lists the plugins in kube-apiserver's recommended order.
var Family = admit.Family{
	Name: "pods",
	Plugins: []*admit.Plugin{
		alwayspullimages.Plugin,
	},
}
