// Package pods is the family that gates pods: one mutating and one validating
// call for a pod, whatever plugins are enabled.
package pods

import (
	"github.com/postern-dev/postern/pkg/admissions/pods/alwayspullimages"
	"github.com/postern-dev/postern/pkg/admissions/pods/defaulttolerationseconds"
	"github.com/postern-dev/postern/pkg/admissions/pods/denyescalatingexec"
	"github.com/postern-dev/postern/pkg/admissions/pods/denyexeconprivileged"
	"github.com/postern-dev/postern/pkg/admissions/pods/extendedresourcetoleration"
	"github.com/postern-dev/postern/pkg/admissions/pods/imagepolicywebhook"
	"github.com/postern-dev/postern/pkg/admissions/pods/initialresources"
	"github.com/postern-dev/postern/pkg/admissions/pods/limitpodhardantiaffinitytopology"
	"github.com/postern-dev/postern/pkg/admissions/pods/limitranger"
	"github.com/postern-dev/postern/pkg/admissions/pods/nodedeclaredfeaturevalidator"
	"github.com/postern-dev/postern/pkg/admissions/pods/podgroupprotection"
	"github.com/postern-dev/postern/pkg/admissions/pods/podnodeselector"
	"github.com/postern-dev/postern/pkg/admissions/pods/podpreset"
	"github.com/postern-dev/postern/pkg/admissions/pods/podresizevalidator"
	"github.com/postern-dev/postern/pkg/admissions/pods/podsecurity"
	"github.com/postern-dev/postern/pkg/admissions/pods/podsecuritypolicy"
	"github.com/postern-dev/postern/pkg/admissions/pods/podtolerationrestriction"
	"github.com/postern-dev/postern/pkg/admissions/pods/podtopologylabels"
	"github.com/postern-dev/postern/pkg/admissions/pods/priority"
	"github.com/postern-dev/postern/pkg/admissions/pods/runtimeclass"
	"github.com/postern-dev/postern/pkg/admissions/pods/securitycontextdeny"
	"github.com/postern-dev/postern/pkg/admissions/pods/serviceaccount"
	"github.com/postern-dev/postern/pkg/admit"
)

// Family lists the plugins in kube-apiserver's recommended order.
var Family = admit.Family{
	Name: "pods",
	Plugins: []*admit.Plugin{
		securitycontextdeny.Plugin,
		limitpodhardantiaffinitytopology.Plugin,
		initialresources.Plugin,
		podpreset.Plugin,
		limitranger.Plugin,
		serviceaccount.Plugin,
		alwayspullimages.Plugin,
		imagepolicywebhook.Plugin,
		podsecurity.Plugin,
		podsecuritypolicy.Plugin,
		podnodeselector.Plugin,
		priority.Plugin,
		defaulttolerationseconds.Plugin,
		podtolerationrestriction.Plugin,
		denyescalatingexec.Plugin,
		denyexeconprivileged.Plugin,
		extendedresourcetoleration.Plugin,
		podgroupprotection.Plugin,
		runtimeclass.Plugin,
		podtopologylabels.Plugin,
		nodedeclaredfeaturevalidator.Plugin,
		podresizevalidator.Plugin,
	},
}
