// Package defaultingressclass gives ingresses that ask for no class that of the
// cluster. See README.md.
package defaultingressclass

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	networkingv1listers "k8s.io/client-go/listers/networking/v1"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// formerClass is the annotation that ingresses had before the field, and that
// controllers still look at.
const formerClass = "kubernetes.io/ingress.class"

// Plugin is DefaultIngressClass.
//
// Upstream: plugin/pkg/admission/network/defaultingressclass.
var Plugin = &admit.Plugin{
	Name: "DefaultIngressClass",
	Rules: []admit.Rule{{
		Phase: admit.Mutating, Group: networkingv1.GroupName, Resources: []string{"ingresses"},
		Operations: []admissionv1.Operation{admissionv1.Create},
		Condition: admit.CELValue("object.spec.ingressClassName", "null") + " == null && " +
			"!('" + formerClass + "' in " + admit.CELValue("object.metadata.annotations", "{}") + ")",
	}},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		if err := admit.NoConfig(data); err != nil {
			return admit.Handler{}, err
		}
		p := &plugin{d.Informers.Networking().V1().IngressClasses().Lister()}
		return admit.Handler{Mutate: admit.Typed(p.mutate)}, nil
	},
}

type plugin struct {
	classes networkingv1listers.IngressClassLister
}

func (p *plugin) mutate(_ context.Context, r *admit.Request, ingress, _ *networkingv1.Ingress) error {
	// An empty name, too, was asked for.
	if _, asked := ingress.Annotations[formerClass]; asked || ingress.Spec.IngressClassName != nil {
		return nil
	}
	classes, err := p.classes.List(labels.Everything())
	if err != nil {
		return admit.Forbidden(r, err)
	}
	if name := admit.DefaultClass(classes, networkingv1.AnnotationIsDefaultIngressClass); name != "" {
		ingress.Spec.IngressClassName = &name
	}
	return nil
}
