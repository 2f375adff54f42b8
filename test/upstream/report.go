package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// spec is a test of Kubernetes with its result.
type spec struct {
	name  string
	group *group
	// excluded is the reason that the test did not run. It is empty if the test was to run.
	excluded string
	state    string
	message  string
}

// The states of a test in Ginkgo's report that this program distinguishes. Other states are failures.
const (
	statePassed  = "passed"
	stateSkipped = "skipped"
)

// suiteReport has the needed fields of types.Report of github.com/onsi/ginkgo/v2.
type suiteReport struct {
	SpecialSuiteFailureReasons []string
	SpecReports                []specReport
}

// specReport has the needed fields of types.SpecReport of github.com/onsi/ginkgo/v2.
type specReport struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	LeafNodeType            string
	State                   string
	Failure                 struct{ Message string }
}

func (r specReport) name() string {
	var words []string
	for _, text := range append(r.ContainerHierarchyTexts, r.LeafNodeText) {
		if text != "" {
			words = append(words, text)
		}
	}
	return strings.Join(words, " ")
}

// parseReport returns the tests of the groups in the order of the report. It returns an error if the suite failed
// outside of a test, if a group has no test, if an exclusion matches no test, or if an excluded test ran.
func parseReport(text []byte, groups []group) ([]spec, error) {
	var suites []suiteReport
	if err := json.Unmarshal(text, &suites); err != nil {
		return nil, fmt.Errorf("reading ginkgo's report: %w", err)
	}
	var specs []spec
	var errs []error
	for _, suite := range suites {
		for _, r := range suite.SpecReports {
			if r.LeafNodeType == "It" {
				s, ok := newSpec(r, groups)
				if !ok {
					continue
				}
				if specs = append(specs, s); s.excluded != "" && s.state != stateSkipped {
					errs = append(errs, fmt.Errorf("%s ran, although it is excluded: %s", s.name, s.state))
				}
			} else if r.State != statePassed && r.State != stateSkipped {
				errs = append(errs, fmt.Errorf("%s %s: %s", r.LeafNodeType, r.State, r.Failure.Message))
			}
		}
		for _, reason := range suite.SpecialSuiteFailureReasons {
			errs = append(errs, errors.New(reason))
		}
	}
	errs = append(errs, checkGroups(groups, specs))
	return specs, errors.Join(errs...)
}

func newSpec(r specReport, groups []group) (spec, bool) {
	name := r.name()
	g := groupOf(groups, name)
	if g == nil {
		return spec{}, false
	}
	s := spec{name: name, group: g, state: r.State, message: r.Failure.Message}
	if e := g.exclusionOf(name); e != nil {
		s.excluded = e.reason
	}
	return s, true
}

// checkGroups returns an error for a group without a test that runs, and for an exclusion that matches no test.
func checkGroups(groups []group, specs []spec) error {
	var errs []error
	for i := range groups {
		g := &groups[i]
		runs := 0
		matched := map[*exclusion]bool{}
		for _, s := range specs {
			switch {
			case s.group != g:
			case s.excluded == "":
				runs++
			default:
				matched[g.exclusionOf(s.name)] = true
			}
		}
		if runs == 0 {
			errs = append(errs, fmt.Errorf("the group %s has no test", g.name))
		}
		for j := range g.excluded {
			if !matched[&g.excluded[j]] {
				errs = append(errs, fmt.Errorf("the group %s excludes %q, and no test has this name", g.name, g.excluded[j].text))
			}
		}
	}
	return errors.Join(errs...)
}
