package admit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/patch"
)

// unchangedAudit is the audit annotation with the plugins whose changes the admitted object lacks, separated by commas.
const unchangedAudit = "admitted-without-changes-of"

// mender reconsiders the denials of one request in the validating phase. In a rollout that adds a plugin, a replica
// without the plugin may have answered the mutating call, so that the object lacks what the plugin's Mutate would have
// changed, and its Validate denies it. The mender makes the changes here, on a copy, and drops the denials that they
// would have prevented.
//
// What is heard of other replicas may be a lie, so it only decides whether to look. A denial is dropped because of what
// this replica finds: the changes of the plugin are absent from the object, and with them the plugin would admit it. The
// Validate of every other plugin still decides about the object as it is, because that is stored.
type mender struct {
	chain   *chain
	request *Request
	// changed is the request after the Mutate of all plugins, and err the reason for which there is none.
	changed *Request
	err     error
	// unchanged holds the plugins whose denials were dropped.
	unchanged []string
}

// reconsider returns nil if the denial of a step is dropped, and otherwise the error of the step: the denial, or that of
// the request with all changes, which names what is really wrong with the object.
func (m *mender) reconsider(ctx context.Context, s step, denial error) error {
	i := slices.IndexFunc(m.chain.mutating, func(o step) bool { return o.plugin == s.plugin && o.sees(m.request.AdmissionRequest) })
	if i < 0 || m.request.Object == nil || !isDenial(denial) || m.chain.everywhere(s.plugin.Name) {
		return denial
	}
	if m.changed == nil && m.err == nil {
		m.changed, m.err = m.request.dryRun(ctx, m.chain.mutating)
	}
	err := m.err
	if err == nil {
		err = s.call(ctx, m.changed)
	}
	switch {
	case isDenial(err):
		return err
	case err != nil || !m.changes(ctx, m.chain.mutating[i]):
		return denial
	}
	m.unchanged = append(m.unchanged, s.plugin.Name)
	return nil
}

// changes reports whether a Mutate would change the object as it arrived. If it would not, all of its changes are there.
func (m *mender) changes(ctx context.Context, mutate step) bool {
	// The memory of one copy is reserved, and that is for m.changed.
	end, err := Hold(ctx, m.request.CopyMemory())
	if err != nil {
		return false
	}
	defer end()
	changed, err := m.request.dryRun(ctx, []step{mutate})
	if err != nil {
		return false
	}
	diff, err := patch.Diff(ctx, m.request.Object, changed.Object, m.request.AdmissionRequest.Object.Raw)
	return err == nil && len(diff) > 0
}

// tell says which changes an admitted object lacks.
func (m *mender) tell(ctx context.Context) {
	if len(m.unchanged) == 0 {
		return
	}
	m.request.Audit(unchangedAudit, strings.Join(m.unchanged, ","))
	klog.FromContext(ctx).V(2).Info("Admitted without the changes of plugins that other replicas may lack",
		"user", m.request.UserInfo.Username, "plugins", m.unchanged)
	if m.chain.mended != nil {
		for _, plugin := range m.unchanged {
			m.chain.mended(plugin)
		}
	}
}

func isDenial(err error) bool {
	_, ok := errors.AsType[*Denial](err)
	return ok
}

// dryRun returns a copy of the request after the steps that see it. The copy has its own warnings and audit annotations.
func (r *Request) dryRun(ctx context.Context, steps []step) (*Request, error) {
	ar := *r.AdmissionRequest
	ar.DryRun = new(true)
	c := &Request{AdmissionRequest: &ar, Object: r.Object.DeepCopyObject(), OldObject: r.OldObject}
	for _, s := range steps {
		if !s.sees(&ar) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("plugin %s was not reached: %w", s.plugin.Name, err)
		}
		if err := s.call(ctx, c); err != nil {
			return nil, err
		}
	}
	return c, nil
}
