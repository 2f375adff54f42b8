// Package fleetquota is the family of limits over several clusters. Its plugin does not mutate objects.
package fleetquota

import (
	"github.com/postern-dev/postern/pkg/admissions/fleetquota/fleetquota"
	"github.com/postern-dev/postern/pkg/admit"
)

// Family has one plugin. kube-apiserver has no such plugin.
var Family = admit.Family{
	Name:    "fleetquota",
	Plugins: []*admit.Plugin{fleetquota.Plugin},
}
