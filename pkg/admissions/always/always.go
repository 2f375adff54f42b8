// Package always is the family of the plugins that decide without reading the
// request.
package always

import (
	"github.com/postern-dev/postern/pkg/admissions/always/alwaysadmit"
	"github.com/postern-dev/postern/pkg/admissions/always/alwaysdeny"
	"github.com/postern-dev/postern/pkg/admit"
)

// Family lists the plugins in kube-apiserver's recommended order.
var Family = admit.Family{
	Name: "always",
	Plugins: []*admit.Plugin{
		alwaysadmit.Plugin,
		alwaysdeny.Plugin,
	},
}
