package admittest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/pkg/router"
)

// deniedBy is the audit annotation with the plugin that denied a request.
const deniedBy = "plugin"

// Outcome is the outcome of a request after both phases.
type Outcome struct {
	// Allowed is true if no phase denied the request. Otherwise Status is the denial.
	Allowed bool
	Status  metav1.Status
	// Warnings and Audit are the combined warnings and audit annotations of both phases. The keys of Audit have no prefix. The
	// annotation that names the plugin of a denial is left out.
	Warnings []string
	Audit    map[string]string
	// Object is the JSON of the object after the phases. Changed reports whether it differs from the object of the
	// request.
	Object  []byte
	Changed bool
	// Failure is the answer to a request that the plugin failed to decide, or nil. The name of the plugin before its text is
	// left out.
	Failure *HTTPError

	// uncalled says why the API server would call in no phase.
	uncalled string
}

func (o *Outcome) verdict() string {
	switch {
	case o.Allowed && o.uncalled != "":
		return "allowed true (the API server does not call: " + o.uncalled + ")"
	case o.Allowed:
		return "allowed true"
	}
	return fmt.Sprintf("allowed false (%d %s %q)", o.Status.Code, o.Status.Reason, o.Status.Message)
}

// Play sends a request through the phases of the case, as the API server does. It returns an
// error if an answer is invalid in every case.
func (s *Server) Play(ctx context.Context, c *Case, r *Request) (*Outcome, error) {
	ar, err := r.Admission()
	if err != nil {
		return nil, err
	}
	out := &Outcome{Allowed: true, Object: ar.Object.Raw, Audit: map[string]string{}}
	out.uncalled = fmt.Sprintf("no rule of the plugin matches %s of %s", ar.Operation, path.Join(ar.Resource.Group, ar.Resource.Version, ar.Resource.Resource, ar.SubResource))
	for _, phase := range []string{router.PhaseMutate, router.PhaseValidate} {
		if !s.Has(phase) || (c.Phase != "" && c.Phase != phase) {
			continue
		}
		if err := s.play(ctx, phase, ar, out); err != nil {
			return nil, fmt.Errorf("%s: %w", phase, err)
		}
		if !out.Allowed {
			return out, nil
		}
	}
	return out, nil
}

// play sends a request through one phase, and once more after a change: plugins
// are called again when a later webhook changed the object.
func (s *Server) play(ctx context.Context, phase string, ar *admissionv1.AdmissionRequest, out *Outcome) error {
	match, err := s.Match(ctx, phase, ar)
	if err != nil {
		return err
	}
	switch {
	case match.Called:
		out.uncalled = ""
	case match.Addressed && out.uncalled != "":
		out.uncalled = "the condition of the rule is false"
	}
	resp, err := s.Post(ctx, phase, ar)
	if violation := s.violation.Load(); violation != nil {
		return errors.New(*violation)
	}
	if !match.Called {
		return s.Silent(resp, err)
	}
	if failure, ok := errors.AsType[*HTTPError](err); ok {
		failure.Body = strings.TrimPrefix(failure.Body, "plugin "+s.plugin+": ")
		out.Allowed, out.Failure = false, failure
		return nil
	}
	if err != nil {
		return err
	}
	out.Warnings = append(out.Warnings, resp.Warnings...)
	maps.Copy(out.Audit, resp.AuditAnnotations)
	if by, ok := out.Audit[deniedBy]; ok && (resp.Allowed || by != s.plugin) {
		return fmt.Errorf("the audit annotation %q is for the plugin that denies, and has %q", deniedBy, by)
	}
	delete(out.Audit, deniedBy)
	if !resp.Allowed {
		out.Allowed = false
		if resp.Result == nil {
			return errors.New("a denial without a status")
		}
		out.Status = *resp.Result
		return nil
	}
	if resp.Patch == nil || phase == router.PhaseValidate {
		return nil
	}
	if ar.Object.Raw, err = apply(ar.Object.Raw, resp.Patch); err != nil {
		return err
	}
	out.Object, out.Changed = ar.Object.Raw, true
	again, err := s.Post(ctx, phase, ar)
	switch {
	case err != nil:
		return fmt.Errorf("the second call: %w", err)
	case !again.Allowed:
		return fmt.Errorf("the second call denied what the first one made: %s", again.Result.Message)
	case again.Patch != nil:
		return fmt.Errorf("the second call changed what the first one made: %s", again.Patch)
	}
	return nil
}

// apply applies a JSON patch as the API server does.
func apply(object, patch []byte) ([]byte, error) {
	ops, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fmt.Errorf("decoding the patch: %w", err)
	}
	changed, err := ops.Apply(object)
	if err != nil {
		return nil, fmt.Errorf("applying the patch %s: %w", patch, err)
	}
	if bytes.Equal(changed, object) {
		return nil, fmt.Errorf("the patch changes nothing: %s", patch)
	}
	return changed, nil
}
