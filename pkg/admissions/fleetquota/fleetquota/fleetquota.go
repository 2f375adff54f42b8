// Package fleetquota denies workloads that exceed a limit over several clusters. See README.md.
package fleetquota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/internal/fleetquota/census"
	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	"github.com/postern-dev/postern/internal/fleetquota/store"
	"github.com/postern-dev/postern/internal/fleetquota/workload"
	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// Plugin is FleetQuota. The handler returns the rules of custom kinds, because they depend on the configuration.
var Plugin = &admit.Plugin{
	Name:         "FleetQuota",
	Rules:        rules(workload.New(workload.Settings{}, nil, nil).All()),
	SideEffects:  true,
	Configurable: true,
	Features:     map[featuregate.Feature]featuregate.FeatureSpec{podspec.PodLevelResources: podspec.QOSFeatures()[podspec.PodLevelResources]},
	Access: access.Rules{
		access.Lookup("", "pods"), access.Lookup("", "namespaces"), access.Lookup("apps", "deployments"), access.Lookup("apps", "statefulsets"),
		access.Lookup("apps", "replicasets"), access.Lookup("apps", "daemonsets"), access.Lookup("batch", "jobs"), access.Lookup("batch", "cronjobs"),
		access.To(quotav1alpha1.GroupName, quotav1alpha1.AllowanceResource, "get", "list", "watch", "create", "update", "delete"),
		access.Review(),
	},
	New: newHandler,
}

type plugin struct {
	config    config
	kinds     *workload.Kinds
	census    *census.Census
	authorize admit.AuthorizeFunc
	ledgers   *ledgers
	spaces    *spaces
}

func newHandler(d admit.Deps, data []byte) (admit.Handler, error) {
	c, err := load(data)
	if err != nil {
		return admit.Handler{}, err
	}
	hub, err := store.NewHub(c.Hub.KubeConfigFile, "postern/"+c.Cluster.Name)
	if err != nil {
		return admit.Handler{}, admit.InvalidField("hub.kubeConfigFile", "%s: %w", c.Hub.KubeConfigFile, err)
	}
	custom := c.kinds()
	kinds := workload.New(workload.Settings{CountSurge: c.CountSurge, DaemonSetNodes: c.DaemonSetNodes}, d.Features, d.Clock, custom...)
	found, err := census.New(d, kinds)
	if err != nil {
		return admit.Handler{}, err
	}
	p := &plugin{config: c, kinds: kinds, census: found, authorize: d.Authorize, spaces: newSpaces(d)}
	if p.ledgers, err = newLedgers(d, c, hub, found); err != nil {
		return admit.Handler{}, err
	}
	if d.Go != nil {
		d.Go(p.ledgers.syncHub)
		d.Go(p.ledgers.recount)
		d.Go(p.ledgers.lookUp)
	}
	return admit.Handler{Validate: p.validate, Rules: rules(custom)}, nil
}

func (p *plugin) validate(ctx context.Context, r *admit.Request) error {
	kind := p.kinds.Find(schema.GroupResource{Group: r.Resource.Group, Resource: r.Resource.Resource})
	if kind == nil || r.Namespace == "" {
		return nil
	}
	selected, err := p.covering(ctx, r.Namespace)
	if err != nil || len(selected) == 0 {
		return err
	}
	obj, old := r.Object, r.OldObject
	if r.SubResource == "scale" {
		if obj, old, err = p.scaled(ctx, r, kind); err != nil || obj == nil {
			return err
		}
	}
	now, before, err := p.measure(r, kind, obj, old)
	if err != nil {
		return err
	}
	d := demandOf(r, kind, obj, old)
	d.Usage, d.Ended = now.Usage, func() bool { return ctx.Err() != nil }
	if before != nil {
		d.Old = before.Usage
	}
	grows := slices.ContainsFunc(selected, func(a *quotav1alpha1.FleetAllowance) bool { return ledger.Adds(d, a) })
	free, released, err := p.isCovered(ctx, r, obj, old, grows)
	if err != nil || free {
		return err
	}
	if released {
		// Its owner goes on to use as much.
		d.Old = nil
	}
	if err := p.checkSet(r, now, before, selected); err != nil {
		return err
	}
	return p.decide(ctx, r, selected, d, now.Run)
}

// covering returns the allowances of the quotas that cover a namespace.
func (p *plugin) covering(ctx context.Context, namespace string) ([]*quotav1alpha1.FleetAllowance, error) {
	all, err := p.ledgers.list()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var out []*quotav1alpha1.FleetAllowance
	for _, a := range all {
		switch in, err := p.spaces.selects(ctx, a.Spec.Namespaces, namespace); {
		case err != nil:
			return nil, err
		case in:
			out = append(out, a)
		}
	}
	return out, nil
}

// scaled returns the object of a scale subresource with the new and with the old number of replicas. It returns nil if
// the object is gone.
func (p *plugin) scaled(ctx context.Context, r *admit.Request, kind *workload.Kind) (obj, old runtime.Object, err error) {
	now, isNew := r.Object.(*autoscalingv1.Scale)
	before, isOld := r.OldObject.(*autoscalingv1.Scale)
	if !isNew || !isOld {
		return nil, nil, fmt.Errorf("got a scale subresource of type %T", r.Object)
	}
	if now.Spec.Replicas <= before.Spec.Replicas {
		return nil, nil, nil
	}
	u, err := p.census.Live(ctx, kind, r.Namespace, r.Name)
	if err != nil || u == nil {
		return nil, nil, err
	}
	stored, err := kind.Typed(u)
	if err != nil {
		return nil, nil, err
	}
	if obj, err = kind.Scaled(stored, now.Spec.Replicas, u.GetResourceVersion()); err != nil {
		return nil, nil, admit.Forbidden(r, err)
	}
	// The API server stores the new number only over the version that it read.
	if old, err = kind.Scaled(stored, before.Spec.Replicas, before.ResourceVersion); err != nil {
		return nil, nil, admit.Forbidden(r, err)
	}
	return obj, old, nil
}

// measure returns what the new and the old object use. An old object that nobody can read uses nothing, and its pods count on
// their own. If the new object is as unreadable, nothing changes: otherwise nobody could remove its finalizers.
func (p *plugin) measure(r *admit.Request, kind *workload.Kind, obj, old runtime.Object) (now, before *workload.Workload, err error) {
	unreadable := false
	if old != nil {
		before, err = p.kinds.Measure(kind, old)
		if unreadable = errors.Is(err, workload.ErrUnreadable); unreadable {
			before, err = &workload.Workload{}, nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
	now, err = p.kinds.Measure(kind, obj)
	switch {
	case !errors.Is(err, workload.ErrUnreadable):
		return now, before, err
	case unreadable:
		return &workload.Workload{}, before, nil
	}
	return nil, nil, admit.Forbidden(r, shortened(err))
}

// checkSet denies containers that do not set a resource that a quota limits. A workload that was stored without it may
// not become larger.
func (p *plugin) checkSet(r *admit.Request, now, before *workload.Workload, selected []*quotav1alpha1.FleetAllowance) error {
	if p.config.AllowUnset {
		return nil
	}
	for _, a := range selected {
		var required []corev1.ResourceName
		for name := range a.Spec.Hard {
			required = append(required, name)
		}
		err := now.Check(required)
		if err == nil || before != nil && before.Check(required) != nil && now.Pods() <= before.Pods() {
			continue
		}
		return admit.Forbidden(r, fmt.Errorf("failed fleet quota: %s: %w", a.Name, shortened(err)))
	}
	return nil
}

func demandOf(r *admit.Request, kind *workload.Kind, obj, old runtime.Object) *ledger.Demand {
	d := &ledger.Demand{Pending: quotav1alpha1.Pending{
		Request: r.UID, Group: kind.Group, Version: kind.Version, Resource: kind.Resource, Namespace: r.Namespace, Name: r.Name,
	}}
	if m, err := meta.Accessor(obj); err == nil {
		d.UID = m.GetUID()
		if m.GetName() != "" {
			d.Name = m.GetName()
		}
	}
	if old != nil {
		if m, err := meta.Accessor(old); err == nil {
			d.From, d.UID = m.GetResourceVersion(), m.GetUID()
		}
	}
	return d
}

// decide charges every quota. If one of them denies, the charges of the others are cancelled.
func (p *plugin) decide(ctx context.Context, r *admit.Request, selected []*quotav1alpha1.FleetAllowance, d *ledger.Demand, run corev1.ResourceList) error {
	slices.SortFunc(selected, func(a, b *quotav1alpha1.FleetAllowance) int { return strings.Compare(a.Name, b.Name) })
	var charged []*book
	for _, a := range selected {
		b := p.ledgers.book(a.Name)
		if err := checkRun(a, run); err != nil {
			return admit.Forbidden(r, err)
		}
		if !ledger.Adds(d, a) {
			continue
		}
		err := b.decide(ctx, d, r.IsDryRun())
		if err != nil {
			for _, other := range charged {
				other.cancel(ctx, d)
			}
			return denial(r, a.Name, b, d, err)
		}
		charged = append(charged, b)
		b.warn(r, d, p.config.WarnAbove)
	}
	return nil
}

// checkRun denies an object whose runs could never be admitted.
func checkRun(a *quotav1alpha1.FleetAllowance, run corev1.ResourceList) error {
	if exceeded := ledger.Beyond(run, a.Spec.Hard); len(exceeded) > 0 {
		return fmt.Errorf("exceeded fleet quota: %s, requested by one run: %s, limited: %s", a.Name, ledger.Text(exceeded), ledger.Text(ledger.Named(a.Spec.Hard, exceeded)))
	}
	return nil
}
