// Package eventratelimit refuses events beyond a rate: of the whole cluster, of a
// namespace, of a user, or of one thing that one source tells of one object. See
// README.md.
package eventratelimit

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

const eventsGroup = eventsv1.GroupName

// Plugin is EventRateLimit. What counts is the kind, as in kube-apiserver, so the
// rule is for all resources of the core group; events are named as well, because
// the router leaves them out where only a wildcard reaches them. The condition
// keeps all else away: with the router's, it costs the API server about 50 µs for
// each write to the core group, and no call.
//
// Upstream: plugin/pkg/admission/eventratelimit.
var Plugin = &admit.Plugin{
	Name:  "EventRateLimit",
	Rules: []admit.Rule{events("", "*", "events")},
	// Tokens are taken.
	SideEffects: true,
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		c, err := load(data)
		if err != nil {
			return admit.Handler{}, err
		}
		p := &plugin{groups: []string{""}}
		for _, l := range c.Limits {
			p.limits = append(p.limits, newBuckets(l, c.Replicas, d.Clock))
		}
		h := admit.Handler{Validate: p.validate}
		if c.IncludeEventsV1 {
			p.groups = append(p.groups, eventsGroup)
			h.Rules = []admit.Rule{events(eventsGroup, "events")}
		}
		return h, nil
	},
}

// events is the rule for events of a group. A dry run stores nothing, so it takes
// no token either.
func events(group string, resources ...string) admit.Rule {
	return admit.Rule{
		Group: group, Resources: resources, Operations: []admissionv1.Operation{admissionv1.Create, admissionv1.Update},
	}.If("request.kind.group == '" + group + "' && request.kind.kind == 'Event' && !(has(request.dryRun) && request.dryRun)").OrIgnore()
}

type plugin struct {
	// groups are those whose events are limited.
	groups []string
	limits []*buckets
}

// validate takes a token for each limit, also where another one has none left.
func (p *plugin) validate(_ context.Context, r *admit.Request) error {
	if r.Kind.Kind != "Event" || !slices.Contains(p.groups, r.Kind.Group) || r.IsDryRun() {
		return nil
	}
	var errs []error
	for _, l := range p.limits {
		if key := l.Type.keyOf(r); !l.take(key) {
			errs = append(errs, fmt.Errorf("limit reached on type %s for key %s", l.Type, key))
		}
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return apierrors.NewTooManyRequestsError(err.Error())
	}
	return nil
}

// keyOf says which bucket a request takes its token from.
func (t limitType) keyOf(r *admit.Request) string {
	switch t {
	case perServer:
	case perNamespace:
		return r.Namespace
	case perUser:
		return r.UserInfo.Username
	case perSourceAndObject:
		return sourceAndObject(r.Object)
	}
	return ""
}

// sourceAndObject says who tells something about what. As in kube-apiserver,
// nothing is between the parts.
func sourceAndObject(obj runtime.Object) string {
	switch e := obj.(type) {
	case *corev1.Event:
		return e.Source.Component + e.Source.Host + object(e.InvolvedObject)
	case *eventsv1.Event:
		// What was written by an older client has its source where that had it.
		return cmp.Or(e.ReportingController, e.DeprecatedSource.Component) + cmp.Or(e.ReportingInstance, e.DeprecatedSource.Host) + object(e.Regarding)
	}
	return ""
}

func object(o corev1.ObjectReference) string {
	return o.Kind + o.Namespace + o.Name + string(o.UID) + o.APIVersion
}
