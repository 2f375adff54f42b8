package admittest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// Run runs the cases of the plugin in the package under test.
func Run(t *testing.T, p *admit.Plugin) {
	t.Helper()
	cases, err := Load("testdata")
	if err != nil {
		t.Fatalf("Loading the cases: %v", err)
	}
	for _, c := range cases {
		t.Run(c.Name(), func(t *testing.T) {
			for _, problem := range c.Check(Context(t), p) {
				t.Error(problem)
			}
		})
	}
}

// Context returns the context of the test, with a logger that writes to the log of
// the test.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	return klog.NewContext(tb.Context(), ktesting.NewLogger(tb, ktesting.NewConfig(ktesting.Verbosity(2))))
}

// Check runs one case and returns the differences from the wanted outcome.
func (c *Case) Check(ctx context.Context, p *admit.Plugin) []string {
	s, err := c.Serve(ctx, p)
	var wrong *admit.PluginError
	switch {
	case c.Want != nil && c.Want.ConfigError != "":
		if s != nil {
			s.Close()
		}
		return c.Want.configError(err)
	case errors.As(err, &wrong):
		return []string{fmt.Sprintf("The plugin could not be made: %v", err)}
	case err != nil:
		return []string{fmt.Sprintf("The case could not be set up: %v", err)}
	}
	defer s.Close()
	var problems []string
	for i, step := range c.Steps {
		where := ""
		if len(c.Steps) > 1 {
			where = fmt.Sprintf("Step %d: ", i+1)
		}
		s.Clock.Step(step.After.Duration)
		for _, p := range s.check(ctx, c, &step) {
			problems = append(problems, where+p)
		}
	}
	problems = append(problems, c.checkPermissions(p, s.Permissions())...)
	return append(problems, s.Backend.Problems()...)
}

// checkPermissions compares the permissions that the calls of the plugin need with those that it has.
func (c *Case) checkPermissions(p *admit.Plugin, needed []access.Permission) []string {
	var problems []string
	for _, n := range needed {
		if !access.Grants(slices.Concat(p.Access, c.Grants), n) {
			problems = append(problems, fmt.Sprintf("The plugin made a call for which Plugin.Access lacks %v", n))
		}
	}
	if len(problems) > 0 {
		return problems
	}
	for i, grant := range c.Grants {
		if !slices.ContainsFunc(needed, func(n access.Permission) bool { return access.Grants(access.Rules{grant}, n) }) {
			problems = append(problems, fmt.Sprintf("No call of the plugin needs grants[%d]", i))
		}
	}
	return problems
}

func (s *Server) check(ctx context.Context, c *Case, step *Step) []string {
	s.ClearActions()
	got, err := s.Play(ctx, c, &step.Request)
	if err != nil {
		return []string{err.Error()}
	}
	problems := step.Want.Differences(got)
	written, err := s.Writes()
	if err != nil {
		return append(problems, err.Error())
	}
	return append(problems, step.Want.DiffWrites(written)...)
}

func (w *Want) configError(err error) []string {
	var wrong *admit.PluginError
	switch {
	case !errors.As(err, &wrong):
		return []string{fmt.Sprintf("Got error %v, want the plugin's %q", err, w.ConfigError)}
	case wrong.Err.Error() != w.ConfigError:
		return []string{fmt.Sprintf("Got configuration error\n\t%q, want\n\t%q", wrong.Err.Error(), w.ConfigError)}
	}
	return nil
}
