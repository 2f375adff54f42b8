// Package defaultingressclass sets the default ingress class on ingresses that request no class. See
// README.md.
package defaultingressclass

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	networkingv1listers "k8s.io/client-go/listers/networking/v1"

	"github.com/postern-dev/postern/internal/kinds/classes"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// formerClass is the annotation that preceded the field. Controllers still read it.
const formerClass = "kubernetes.io/ingress.class"

// Plugin is DefaultIngressClass.
//
// Upstream: plugin/pkg/admission/network/defaultingressclass.
var Plugin = &admit.Plugin{
	Name: "DefaultIngressClass",
	// The rule has no condition: a webhook that is called later may remove the class.
	Rules:  []admit.Rule{admit.On("ingresses", admissionv1.Create).Of(networkingv1.GroupName)},
	Access: access.Rules{access.Watch("networking.k8s.io", "ingressclasses")},
	New: func(d admit.Deps, _ []byte) (admit.Handler, error) {
		p := &plugin{d.Informers.Networking().V1().IngressClasses().Lister()}
		return admit.Handler{Mutate: admit.Typed(p.mutate)}, nil
	},
}

type plugin struct {
	classes networkingv1listers.IngressClassLister
}

func (p *plugin) mutate(_ context.Context, _ *admit.Request, ingress, _ *networkingv1.Ingress) error {
	// An empty name is a requested class too.
	if _, asked := ingress.Annotations[formerClass]; asked || ingress.Spec.IngressClassName != nil {
		return nil
	}
	list, err := p.classes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing IngressClasses: %w", err)
	}
	if name := classes.Default(list, networkingv1.AnnotationIsDefaultIngressClass); name != "" {
		ingress.Spec.IngressClassName = &name
	}
	return nil
}
