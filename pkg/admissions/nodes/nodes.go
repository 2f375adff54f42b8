// Package nodes is the family that gates what nodes do, and how they join: the API
// server calls it for nodes alone, and hardly ever for one that does what a kubelet
// does.
package nodes

import (
	"github.com/postern-dev/postern/pkg/admissions/admit"
	"github.com/postern-dev/postern/pkg/admissions/nodes/noderestriction"
	"github.com/postern-dev/postern/pkg/admissions/nodes/taintnodesbycondition"
)

// Family lists the plugins in kube-apiserver's recommended order.
var Family = admit.Family{
	Name: "nodes",
	Plugins: []*admit.Plugin{
		noderestriction.Plugin,
		taintnodesbycondition.Plugin,
	},
}
