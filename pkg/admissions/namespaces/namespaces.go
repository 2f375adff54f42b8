// Package namespaces is the family that gates what is in namespaces by what
// becomes of the namespace itself. None of its plugins changes an object, so none
// has to be called again when others do.
package namespaces

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/postern-dev/postern/pkg/admissions/admit"
	"github.com/postern-dev/postern/pkg/admissions/namespaces/namespaceautoprovision"
	"github.com/postern-dev/postern/pkg/admissions/namespaces/namespaceexists"
	"github.com/postern-dev/postern/pkg/admissions/namespaces/namespacelifecycle"
)

// Family lists the plugins in kube-apiserver's recommended order.
var Family = admit.Family{
	Name: "namespaces",
	Plugins: []*admit.Plugin{
		namespaceautoprovision.Plugin,
		namespacelifecycle.Plugin,
		namespaceexists.Plugin,
	},
	ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
}
