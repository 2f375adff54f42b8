// Package certificates is the family of plugins that validate certificate signing requests and trust bundles.
package certificates

import (
	"github.com/postern-dev/postern/pkg/admissions/certificates/certificateapproval"
	"github.com/postern-dev/postern/pkg/admissions/certificates/certificatesigning"
	"github.com/postern-dev/postern/pkg/admissions/certificates/certificatesubjectrestriction"
	"github.com/postern-dev/postern/pkg/admissions/certificates/clustertrustbundleattest"
	"github.com/postern-dev/postern/pkg/admit"
)

// Family lists the plugins in kube-apiserver's recommended order.
var Family = admit.Family{
	Name: "certificates",
	Plugins: []*admit.Plugin{
		certificateapproval.Plugin,
		certificatesigning.Plugin,
		clustertrustbundleattest.Plugin,
		certificatesubjectrestriction.Plugin,
	},
}
