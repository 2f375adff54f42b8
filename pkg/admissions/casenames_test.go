package admissions

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/pkg/admit/admittest"
)

// TestCaseNames checks that the name of a case begins with what the case is about, so that the files of a folder are
// sorted by it.
func TestCaseNames(t *testing.T) {
	for _, m := range members() {
		for _, c := range m.cases(t) {
			if err := checkCaseName(c); err != nil {
				t.Errorf("%s: case %s: %v", m.Name, c.Name(), err)
			}
		}
	}
}

var caseName = regexp.MustCompile(`^(config|create|update|delete|connect|reinvoke)(-[a-z0-9]+)+$`)

// checkCaseName returns an error if the prefix of the name contradicts the case: config- is for configurations that
// are refused, reinvoke- for requests that repeat an earlier one, and any other prefix is the operation of a request.
func checkCaseName(c *admittest.Case) error {
	match := caseName.FindStringSubmatch(c.Name())
	if match == nil {
		return fmt.Errorf("want a name that matches %s", caseName)
	}
	refused := c.Want != nil && c.Want.ConfigError != ""
	if refused != (match[1] == "config") {
		return errors.New("want the prefix config- exactly for cases with want.configError")
	}
	named := func(s admittest.Step) bool { return strings.ToLower(string(s.Request.Operation)) == match[1] }
	if !refused && match[1] != "reinvoke" && !slices.ContainsFunc(c.Steps, named) {
		return fmt.Errorf("no request has the operation %s", strings.ToUpper(match[1]))
	}
	return nil
}
