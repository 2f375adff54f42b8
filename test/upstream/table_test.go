package main

import (
	"strings"
	"testing"
	"time"
)

// results returns a table of the tests. Each part of a test, between slashes, is its state in one of the columns.
func results(columns []column, tests map[string]string) *table {
	groups := []group{{name: "g"}}
	t := &table{groups: groups, columns: columns, kubernetes: "v1.37.1", postern: "postern v1", date: time.Unix(0, 0).UTC()}
	for name, states := range tests {
		for i, state := range strings.Split(states, "/") {
			t.add(columns[i], []spec{{name: name, group: &groups[0], state: state, message: "why"}})
		}
	}
	return t
}

func TestTable(t *testing.T) {
	table := results(allColumns(), map[string]string{
		"[x] proves":          "passed/failed/passed",
		"proves nothing":      "passed/passed/passed",
		"also proves nothing": "passed/passed/passed",
	})
	table.add(table.columns[0], []spec{{name: "a pod", group: &table.groups[0], excluded: needsRunning}})
	const want = `1970-01-01, Kubernetes v1.37.1, postern v1.

Of 3 tests pass: 3 with kube-apiserver's plugins, 2 with neither, 3 with Postern's plugins. Tests that prove something about Postern, because they fail with neither: 1. Of these, 1 pass with Postern's plugins.

| test | kube-apiserver's plugins | neither | Postern's plugins |
|---|---|---|---|
| \[x\] proves | passed | **failed** | passed |
| also proves nothing | passed | passed | passed |
| proves nothing | passed | passed | passed |

| not run | reason |
|---|---|
| a pod | It waits for a pod that runs. |
`
	var b strings.Builder
	if err := table.write(&b); err != nil || b.String() != want {
		t.Errorf("Got %v:\n%s\nwant:\n%s", err, b.String(), want)
	}
	if err := table.judge(); err != nil {
		t.Errorf("The judgement is %v, want none", err)
	}
}

func TestJudge(t *testing.T) {
	all := allColumns()
	for name, test := range map[string]struct {
		columns []column
		states  string
		want    string // empty: no error
	}{
		"fails with Postern":                {all, "passed/failed/failed", "a: failed with Postern's plugins"},
		"panics with Postern":               {all, "passed/failed/panicked", "a: panicked with Postern's plugins"},
		"skips itself with Postern":         {all, "passed/failed/skipped", "a: skipped with Postern's plugins"},
		"did not run with Postern":          {all, "passed/failed", "a:  with Postern's plugins"},
		"fails with kube-apiserver's":       {all, "failed/failed/passed", "a: failed with kube-apiserver's plugins"},
		"nothing is proved":                 {all, "passed/passed/passed", "nothing is proved"},
		"only Postern, passes":              {all[2:], "passed", ""},
		"only Postern, fails":               {all[2:], "failed", "a: failed with Postern's plugins"},
		"only without plugins, fails":       {all[1:2], "failed", ""},
		"only kube-apiserver's, times out":  {all[:1], "timedout", "a: timedout"},
		"only kube-apiserver's, all passes": {all[:1], "passed", ""},
	} {
		err := results(test.columns, map[string]string{"a": test.states}).judge()
		if test.want == "" && err != nil {
			t.Errorf("%s: the judgement is %v, want none", name, err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: the judgement is %v, want %q", name, err, test.want)
		}
	}
}

func TestFailuresAreShown(t *testing.T) {
	var b strings.Builder
	if err := results(allColumns(), map[string]string{"a": "passed/failed/failed"}).write(&b); err != nil {
		t.Fatal(err)
	}
	if want := "\na, with Postern's plugins: failed\nwhy\n"; !strings.HasSuffix(b.String(), want) {
		t.Errorf("The table ends otherwise than with %q:\n%s", want, b.String())
	}
	if strings.Contains(b.String(), "a, with neither") {
		t.Errorf("The table explains a failure that is expected:\n%s", b.String())
	}
}
