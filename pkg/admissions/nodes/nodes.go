// Package nodes is the family of plugins that validate the requests of nodes and taint new nodes. The API
// server calls it only for nodes, and rarely for the usual requests of a kubelet.
package nodes

import (
	"github.com/postern-dev/postern/pkg/admissions/nodes/noderestriction"
	"github.com/postern-dev/postern/pkg/admissions/nodes/taintnodesbycondition"
	"github.com/postern-dev/postern/pkg/admit"
)

// Family lists the plugins in kube-apiserver's recommended order.
var Family = admit.Family{
	Name: "nodes",
	Plugins: []*admit.Plugin{
		noderestriction.Plugin,
		taintnodesbycondition.Plugin,
	},
}
