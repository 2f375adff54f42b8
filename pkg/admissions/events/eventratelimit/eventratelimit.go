// Package eventratelimit refuses events beyond a rate: of the cluster, of a namespace, of a user, or of one
// source and object. See README.md.
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

	"github.com/postern-dev/postern/pkg/admit"
)

const eventsGroup = eventsv1.GroupName

// Plugin is EventRateLimit. kube-apiserver's plugin matches the kind Event instead of the resource; only the
// resource events has that kind.
//
// Upstream: plugin/pkg/admission/eventratelimit.
var Plugin = &admit.Plugin{
	Name:  "EventRateLimit",
	Rules: []admit.Rule{events("")},
	// The plugin takes tokens, which is a side effect.
	SideEffects:  true,
	Configurable: true,
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
			h.Rules = []admit.Rule{events(eventsGroup)}
		}
		return h, nil
	},
}

// events returns the rule for the events of a group. A dry run stores nothing, so it takes no token.
func events(group string) admit.Rule {
	return admit.On("events", admissionv1.Create, admissionv1.Update).Of(group).
		If("request.kind.group == '" + group + "' && request.kind.kind == 'Event' && !(has(request.dryRun) && request.dryRun)").In(admit.Validating).OrIgnore()
}

type plugin struct {
	// groups are the API groups whose events are limited.
	groups []string
	limits []*buckets
}

// validate takes a token from each limit, even if another limit has refused the event.
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
		return admit.Deny(apierrors.NewTooManyRequestsError(err.Error()))
	}
	return nil
}

// keyOf returns the key of the bucket for a request.
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

// sourceAndObject returns the key of the source and the object of an event. As in kube-apiserver, the parts
// have no separator.
func sourceAndObject(obj runtime.Object) string {
	switch e := obj.(type) {
	case *corev1.Event:
		return e.Source.Component + e.Source.Host + object(e.InvolvedObject)
	case *eventsv1.Event:
		// An event from an older client has its source in the deprecated field.
		return cmp.Or(e.ReportingController, e.DeprecatedSource.Component) + cmp.Or(e.ReportingInstance, e.DeprecatedSource.Host) + object(e.Regarding)
	}
	return ""
}

func object(o corev1.ObjectReference) string {
	return o.Kind + o.Namespace + o.Name + string(o.UID) + o.APIVersion
}
