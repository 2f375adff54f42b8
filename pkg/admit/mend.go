package admit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/internal/shorttext"
)

// unchangedAudit is the audit annotation with the plugins whose changes the admitted object lacks, separated by commas.
const unchangedAudit = "admitted-without-changes-of"

// mender reconsiders the denials of one request in the validating phase. In a rollout that adds a plugin, a replica
// without the plugin may have answered the mutating call, so that the object lacks what the plugin's Mutate would have
// changed, and its Validate denies it. The mender makes the changes here, on a copy, and drops the denials that they
// would have prevented.
//
// What is heard of other replicas may be a lie, so it only decides whether to look. A denial is dropped because of what
// this replica finds: the object lacks changes of the plugin, and with the changes of all plugins this one would admit it.
// The Validate of every other plugin still decides about the object as it is, because that is stored.
type mender struct {
	chain   *chain
	request *Request
	// changed is the request after the Mutate of all plugins, once it is made.
	changed *Request
	// unchanged holds the plugins whose denials were dropped.
	unchanged []string
}

// reconsider returns nil if the denial of a step is dropped. Otherwise it returns the denial, or that of the request with all
// changes, which names what is really wrong with the object, and the step that denied.
func (m *mender) reconsider(ctx context.Context, s step, denial error) (step, error) {
	own := slices.IndexFunc(m.chain.mutating, func(o step) bool { return o.plugin == s.plugin && o.sees(m.request.AdmissionRequest) })
	if own < 0 || m.request.Object == nil || !IsDenial(denial) || !m.chain.mixed() {
		return s, denial
	}
	// Slow dry runs must leave time for the denial.
	ctx, cancel := halfOfTheTime(ctx)
	defer cancel()
	by, err := m.change(ctx)
	if err == nil {
		by, err = s, s.call(ctx, m.changed)
	}
	switch {
	case IsDenial(err):
		return by, err
	case err != nil || !m.lacks(ctx, own):
		return s, denial
	}
	m.unchanged = append(m.unchanged, s.plugin.Name)
	return s, nil
}

// change makes the changes of all plugins once. Of an error, it returns the step.
func (m *mender) change(ctx context.Context) (by step, err error) {
	if m.changed == nil {
		m.changed, by, err = m.request.dryRun(ctx, m.chain.mutating)
	}
	return by, err
}

// lacks reports whether the object lacks changes of a mutating step: whether the step would change the object, after those
// before it.
func (m *mender) lacks(ctx context.Context, own int) bool {
	ctx, end := reads.Scope(ctx)
	defer end()
	// The memory of one copy is reserved, and that is for m.changed.
	if err := need(ctx, m.request.CopyMemory()); err != nil {
		return false
	}
	before, _, err := m.request.dryRun(ctx, m.chain.mutating[:own])
	if err != nil || need(ctx, before.CopyMemory()) != nil {
		return false
	}
	after, _, err := before.dryRun(ctx, m.chain.mutating[own:own+1])
	return err == nil && !apiequality.Semantic.DeepEqual(before.Object, after.Object)
}

// tell says which changes an admitted object lacks.
func (m *mender) tell(ctx context.Context) {
	if len(m.unchanged) == 0 {
		return
	}
	m.request.Audit(unchangedAudit, strings.Join(m.unchanged, ","))
	klog.FromContext(ctx).V(2).Info("Admitted without the changes of plugins that other replicas may lack",
		"user", shorttext.Line(m.request.UserInfo.Username, maxLoggedUser), "plugins", m.unchanged)
	if m.chain.mended != nil {
		for _, plugin := range m.unchanged {
			m.chain.mended(plugin)
		}
	}
}

// halfOfTheTime returns a context that ends when half of the time of ctx is over.
func halfOfTheTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}

// dryRun returns a copy of the request after the steps that see it, or the step that did not admit it and its error. The copy has
// its own warnings and audit annotations.
func (r *Request) dryRun(ctx context.Context, steps []step) (*Request, step, error) {
	ar := *r.AdmissionRequest
	ar.DryRun = new(true)
	c := &Request{AdmissionRequest: &ar, Object: r.Object.DeepCopyObject(), OldObject: r.OldObject, grown: r.grown}
	for _, s := range steps {
		if !s.sees(&ar) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, s, fmt.Errorf("plugin %s was not reached: %w", s.plugin.Name, err)
		}
		if err := s.call(ctx, c); err != nil {
			return nil, s, err
		}
	}
	return c, step{}, nil
}
