// Package resourcequota denies objects that exceed a quota of their namespace, or for which there is no quota although
// the administrator requires one. See README.md.
package resourcequota

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	engine "k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	resourcequotaapi "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	kindpods "github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/pkg/admissions/quota/resourcequota/internal/usage"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

const name = "ResourceQuota"

// Plugin is ResourceQuota. The handler returns the rules, because they depend on the configuration.
//
// Upstream: k8s.io/apiserver/pkg/admission/plugin/resourcequota, whose quota engine decides here too.
var Plugin = &admit.Plugin{
	Name:         name,
	SideEffects:  true,
	Features:     kindpods.QOSFeatures(),
	Configurable: true,
	Access: access.Rules{
		access.Watch("", "resourcequotas"), access.To("", "resourcequotas/status", "update"), access.To("", "pods", "get"),
		access.To("resource.k8s.io", "resourceclaims", "list"), access.To("resource.k8s.io", "deviceclasses", "list"),
	},
	New: newHandler,
}

func newHandler(d admit.Deps, data []byte) (admit.Handler, error) {
	c, err := load(data)
	if err != nil {
		return admit.Handler{}, err
	}
	enforcedAnyhow := d.APIServerRuns(name)
	if c.Mode == modeCharge && enforcedAnyhow {
		return admit.Handler{}, admit.InvalidField("mode", "the API server runs %s itself, so every object would be charged twice; "+
			"if it does not, say so with --%s", name, admit.APIServerFlag)
	}
	informer := d.Informers.Core().V1().ResourceQuotas()
	informer.Informer()
	p := &plugin{
		config: c, limited: c.limited(), quotas: newQuotas(informer.Lister(), d.Client.CoreV1()),
		client: d.Client, features: d.Features, clock: d.Clock,
	}
	p.ledger = newLedger(p.quotas, p.limited)
	return admit.Handler{Validate: p.validate, Rules: c.rules(enforcedAnyhow), Warnings: c.warnings()}, nil
}

type plugin struct {
	config   config
	limited  []resourcequotaapi.LimitedResource
	quotas   *quotas
	ledger   *ledger
	client   kubernetes.Interface
	features featuregate.FeatureGate
	clock    clock.PassiveClock
}

func (p *plugin) validate(ctx context.Context, r *admit.Request) error {
	gr := schema.GroupResource{Group: r.Resource.Group, Resource: r.Resource.Resource}
	a := attributesOf(r)
	if r.Namespace == "" || gr == (schema.GroupResource{Resource: "namespaces"}) || usage.Ignored(gr) ||
		!usage.For(gr, p.features, p.clock, usage.Devices{}).Handles(a) {
		return nil
	}
	quotas, err := p.quotas.in(r.Namespace)
	if err != nil {
		return err
	}
	if len(quotas) == 0 && len(p.limited) == 0 {
		return nil
	}
	devices, err := usage.LoadDevices(ctx, p.client, r.Object, p.features, p.clock)
	if err != nil {
		return err
	}
	evaluator := usage.For(gr, p.features, p.clock, devices)
	if p.config.Mode == modeLimited {
		_, err := checkRequest(unlimited(quotas), unchecked{a}, coverage{evaluator}, p.limited)
		return denial(r, err)
	}
	after, err := checkRequest(quotas, a, evaluator, p.limited)
	switch {
	case err != nil:
		return denial(r, err)
	case p.config.Mode == modeCheck:
		p.warn(r, quotas, after)
		return nil
	case r.IsDryRun() || len(changed(quotas, after)) == 0:
		return nil
	}
	return denial(r, p.ledger.charge(ctx, r.Namespace, &demand{attributes: a, evaluator: evaluator}))
}

// attributesOf returns the request in the form of the quota engine. The engine sets the namespace of an object that has
// none, so it gets a copy of such an object.
func attributesOf(r *admit.Request) admission.Attributes {
	obj := r.Object
	if m, err := meta.Accessor(obj); err == nil && m.GetNamespace() == "" {
		obj = obj.DeepCopyObject()
	}
	return admission.NewAttributesRecord(obj, r.OldObject, schema.GroupVersionKind(r.Kind), r.Namespace, r.Name,
		schema.GroupVersionResource(r.Resource), r.SubResource, admission.Operation(r.Operation), nil, r.IsDryRun(), nil)
}

// engineError is an error of the quota engine that is no Status, such as one about a scope of a quota. The engine asks
// nobody, so users wrote what it cannot decide about. In kube-apiserver such an error is a denial with code 500.
type engineError struct{ error }

// checkRequest returns the quotas as they are after the request. An error is a denial: a Status or an engineError.
func checkRequest(quotas []corev1.ResourceQuota, a admission.Attributes, evaluator quotav1.Evaluator, limited []resourcequotaapi.LimitedResource) ([]corev1.ResourceQuota, error) {
	after, err := engine.CheckRequest(quotas, a, evaluator, limited)
	if _, ok := err.(apierrors.APIStatus); err != nil && !ok {
		return nil, engineError{err}
	}
	return after, err
}

// denial makes a denial of an error of checkRequest. Other errors are failures.
func denial(r *admit.Request, err error) error {
	if e, ok := errors.AsType[engineError](err); ok {
		return admit.ForbiddenAs(r, e.error)
	}
	if _, ok := err.(apierrors.APIStatus); ok {
		return admit.Deny(err)
	}
	return err
}

// unlimited returns quotas that cover the same resources and are never exceeded.
func unlimited(quotas []corev1.ResourceQuota) []corev1.ResourceQuota {
	for i := range quotas {
		used := make(corev1.ResourceList, len(quotas[i].Status.Hard))
		for name := range quotas[i].Status.Hard {
			used[name] = resource.Quantity{}
		}
		quotas[i].Status.Used = used
	}
	return quotas
}

// coverage is an evaluator that only asks which resources and scopes of an object a quota covers.
type coverage struct{ quotav1.Evaluator }

// Handles implements quota.Evaluator. The request has been found to concern quotas.
func (coverage) Handles(admission.Attributes) bool { return true }

// Constraints implements quota.Evaluator.
func (coverage) Constraints([]corev1.ResourceName, runtime.Object) error { return nil }

// unchecked is a request that may exceed a quota, as an update of a status may.
type unchecked struct{ admission.Attributes }

// GetSubresource implements admission.Attributes.
func (unchecked) GetSubresource() string { return "status" }
