// Package ownership is the family of plugins that validate owner references, on objects of every kind.
package ownership

import (
	"github.com/postern-dev/postern/pkg/admissions/ownership/ownerreferencespermissionenforcement"
	"github.com/postern-dev/postern/pkg/admit"
)

// Family lists the plugins in kube-apiserver's recommended order.
var Family = admit.Family{
	Name:    "ownership",
	Plugins: []*admit.Plugin{ownerreferencespermissionenforcement.Plugin},
}
