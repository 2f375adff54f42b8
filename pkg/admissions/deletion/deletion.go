// Package deletion is the family of plugins that decide when an object may be deleted.
package deletion

import (
	"github.com/postern-dev/postern/pkg/admissions/deletion/deletiongate"
	"github.com/postern-dev/postern/pkg/admit"
)

// Family lists the plugins.
var Family = admit.Family{
	Name: "deletion",
	Plugins: []*admit.Plugin{
		deletiongate.Plugin,
	},
}
