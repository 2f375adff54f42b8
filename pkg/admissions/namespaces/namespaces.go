// Package namespaces is the family that validates requests against the state of
// their namespace. None of its plugins changes an object, so the API server need not
// call them again after other webhooks.
package namespaces

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/postern-dev/postern/pkg/admissions/namespaces/namespaceautoprovision"
	"github.com/postern-dev/postern/pkg/admissions/namespaces/namespaceexists"
	"github.com/postern-dev/postern/pkg/admissions/namespaces/namespacelifecycle"
	"github.com/postern-dev/postern/pkg/admit"
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
	AnyNamespace:       true,
}
