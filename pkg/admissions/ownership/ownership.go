// Package ownership is the family that gates who may make one object the owner of
// another, whatever they are.
package ownership

import (
	"github.com/postern-dev/postern/pkg/admissions/admit"
	"github.com/postern-dev/postern/pkg/admissions/ownership/ownerreferencespermissionenforcement"
)

// Family lists the plugins in kube-apiserver's recommended order.
var Family = admit.Family{
	Name:    "ownership",
	Plugins: []*admit.Plugin{ownerreferencespermissionenforcement.Plugin},
}
