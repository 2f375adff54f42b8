// Package quota is the family that gates every new object in a namespace. Its plugin changes no object.
package quota

import (
	"github.com/postern-dev/postern/pkg/admissions/quota/resourcequota"
	"github.com/postern-dev/postern/pkg/admit"
)

// Family lists the plugins in kube-apiserver's recommended order.
var Family = admit.Family{
	Name: "quota",
	Plugins: []*admit.Plugin{
		resourcequota.Plugin,
	},
}
