// Package teamlabel gives every Service the team label of its namespace.
package teamlabel

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// inherit is the feature gate of the mutating half.
const inherit featuregate.Feature = "TeamLabelInheritance"

// Plugin is TeamLabel. Its configuration is the key of the label.
var Plugin = &admit.Plugin{
	Name: "TeamLabel", Configurable: true,
	Features: map[featuregate.Feature]featuregate.FeatureSpec{inherit: {Default: true, PreRelease: featuregate.Beta}},
	Access:   access.Rules{access.Lookup("", "namespaces")},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		p := &plugin{Label: "team", namespaces: d.Informers.Core().V1().Namespaces().Lister(), live: d.Client.CoreV1().Namespaces()}
		if err := admit.DecodeConfig(data, p); err != nil {
			return admit.Handler{}, err
		}
		if wrong := validation.IsQualifiedName(p.Label); len(wrong) > 0 {
			return admit.Handler{}, admit.InvalidField("label", "%q: %s", p.Label, wrong[0])
		}
		// The API server calls for validation only if the Service lacks the label. A mutating rule on CREATE has
		// no such condition, because a later webhook may remove the label.
		labels, key := admit.CELValue("object.metadata.labels", "{}"), admit.CELString(p.Label)
		missing := fmt.Sprintf("!(%[2]s in %[1]s) || %[1]s[%[2]s] == ''", labels, key)
		h := admit.Handler{Validate: admit.Typed(p.validate), Rules: []admit.Rule{admit.On("services", "CREATE", "UPDATE").In(admit.Validating).If(missing)}}
		if d.Features.Enabled(inherit) {
			h.Mutate, h.Rules = admit.Typed(p.mutate), append(h.Rules, admit.On("services", "CREATE").In(admit.Mutating))
		}
		return h, nil
	},
}

type plugin struct {
	Label      string `json:"label"`
	namespaces corev1listers.NamespaceLister
	live       admit.Getter[*corev1.Namespace]
}

func (p *plugin) mutate(ctx context.Context, r *admit.Request, svc, _ *corev1.Service) error {
	ns, err := admit.Lookup(ctx, p.namespaces, p.live, r.Namespace)
	if err == nil && ns.Labels[p.Label] != "" && svc.Labels[p.Label] == "" {
		metav1.SetMetaDataLabel(&svc.ObjectMeta, p.Label, ns.Labels[p.Label])
	}
	return err
}

func (p *plugin) validate(_ context.Context, r *admit.Request, svc, _ *corev1.Service) error {
	if svc.Labels[p.Label] == "" {
		return admit.Forbidden(r, fmt.Errorf("the label %s is missing", p.Label))
	}
	return nil
}
