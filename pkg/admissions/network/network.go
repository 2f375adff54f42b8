// Package network is the family of plugins that mutate and validate ingresses and services.
package network

import (
	"github.com/postern-dev/postern/pkg/admissions/network/defaultingressclass"
	"github.com/postern-dev/postern/pkg/admissions/network/denyserviceexternalips"
	"github.com/postern-dev/postern/pkg/admit"
)

// Family lists the plugins in kube-apiserver's recommended order.
var Family = admit.Family{
	Name: "network",
	Plugins: []*admit.Plugin{
		defaultingressclass.Plugin,
		denyserviceexternalips.Plugin,
	},
}
