package main

import (
	"regexp"
	"strings"
	"testing"
)

const goodReport = `[{"SpecReports": [
  {"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"},
  {"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-a] Quota", ""], "LeafNodeText": "should pass", "State": "passed"},
  {"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-a] Quota"], "LeafNodeText": "should fail", "State": "failed", "Failure": {"Message": "it is wrong"}},
  {"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-a] Quota"], "LeafNodeText": "should run a pod", "State": "skipped"},
  {"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-b] Other"], "LeafNodeText": "should pass", "State": "skipped"}
]}]`

func quota(excluded ...exclusion) []group {
	return []group{{name: "quota", focus: regexp.MustCompile("Quota"), excluded: excluded}}
}

func TestParseReport(t *testing.T) {
	groups := quota(exclusion{"run a pod", needsRunning})
	specs, err := parseReport([]byte(goodReport), groups)
	if err != nil {
		t.Fatal(err)
	}
	want := []spec{
		{name: "[sig-a] Quota should pass", state: "passed"},
		{name: "[sig-a] Quota should fail", state: "failed", message: "it is wrong"},
		{name: "[sig-a] Quota should run a pod", state: "skipped", excluded: needsRunning},
	}
	if len(specs) != len(want) {
		t.Fatalf("Got %+v, want %+v", specs, want)
	}
	for i, got := range specs {
		if want[i].group = &groups[0]; got != want[i] {
			t.Errorf("Got %+v, want %+v", got, want[i])
		}
	}
}

func TestReportOfABrokenRunIsAnError(t *testing.T) {
	for name, test := range map[string]struct {
		report   string
		excluded []exclusion
		want     string
	}{
		"no JSON":              {"", nil, "reading ginkgo's report"},
		"no test of the group": {`[{"SpecReports": []}]`, nil, "the group quota has no test"},
		"all are excluded":     {goodReport, []exclusion{{"should", needsRunning}}, "the group quota has no test"},
		"an excluded test ran": {goodReport, []exclusion{{"should fail", needsRunning}}, "should fail ran, although it is excluded: failed"},
		"an old exclusion":     {goodReport, []exclusion{{"renamed", needsRunning}}, `excludes "renamed", and no test has this name`},
		"the suite failed": {
			strings.Replace(goodReport, `"State": "passed"}`, `"State": "failed", "Failure": {"Message": "no node"}}`, 1), nil,
			"SynchronizedBeforeSuite failed: no node",
		},
		"the time is up": {`[{"SpecialSuiteFailureReasons": ["Suite Timeout Elapsed"]}]`, nil, "Suite Timeout Elapsed"},
	} {
		_, err := parseReport([]byte(test.report), quota(test.excluded...))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: the error is %v, want %q", name, err, test.want)
		}
	}
}
