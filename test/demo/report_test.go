package main

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/test/demo/example"
)

func TestCompare(t *testing.T) {
	fields := []example.Field{{Path: ".spec.a", Want: "x"}, {Path: ".spec.b", Want: "y"}}
	for name, test := range map[string]struct {
		result result
		want   []string
	}{
		"stored as expected":   {result{Example: &example.Example{Fields: fields}, stored: true, found: []string{"x", "y"}}, nil},
		"a field differs":      {result{Example: &example.Example{Fields: fields}, stored: true, found: []string{"x", "z"}}, []string{`.spec.b is "z", want "y"`}},
		"refused, want stored": {result{Example: &example.Example{Fields: fields}, said: "no"}, []string{"it was refused, want it stored"}},
		"refused as expected":  {result{Example: &example.Example{Refused: "because"}, said: "no, because of that"}, nil},
		"refused otherwise":    {result{Example: &example.Example{Refused: "because"}, said: "connection refused"}, []string{`the refusal does not say "because"`}},
		"stored, want refused": {result{Example: &example.Example{Refused: "because"}, stored: true}, []string{`it was not refused, want it refused with "because"`}},
		"the setup failed too": {
			result{Example: &example.Example{}, stored: true, differs: []string{"the setup"}}, []string{"the setup"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.result.compare()
			if got, want := strings.Join(test.result.differs, "\n"), strings.Join(test.want, "\n"); got != want {
				t.Errorf("It differs by\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	pod := func(name string) *example.Example {
		return &example.Example{Name: name, Request: example.Document{
			Object: map[string]any{"kind": "Pod", "metadata": map[string]any{"name": "web"}},
		}}
	}
	changed := pod("01-changed")
	changed.Fields = []example.Field{{Path: ".spec.a"}, {Path: ".spec.b"}}
	connection := pod("04-connection")
	connection.Connect = "exec"
	results := []*result{
		{Example: changed, stored: true, sent: []string{"x", ""}, found: []string{"y", "z"}, said: "Warning: old\n"},
		{Example: pod("02-refused"), said: "Error: no,\nnot this"},
		{Example: pod("03-plain"), stored: true, differs: []string{"it is bad", "very bad"}},
		{Example: connection, said: "Error: not into this"},
		{Example: pod("05-left"), lacks: []string{"Priority", "PodSecurity"}},
	}
	var b strings.Builder
	if err := (&demo{out: &b}).report(results); err != nil {
		t.Fatal(err)
	}
	want := `
EXAMPLE        WHAT          SENT  THE CLUSTER HAS                           RESULT
01-changed     .spec.a       x     y                                         ok
               .spec.b       -     z
02-refused     Pod web             refused (below)                           ok
03-plain       Pod web             stored                                    DIFFERS
04-connection  exec Pod web        refused (below)                           ok
05-left        Pod web             not applied: needs Priority, PodSecurity

01-changed was stored with a warning:
  Warning: old

02-refused was refused:
  Error: no,
  not this

04-connection was refused:
  Error: not into this

03-plain DIFFERS from what its file expects:
  it is bad
  very bad

3 of 4 examples ended as their files say. 1 not applied, because their plugins do not run.

`
	if got := b.String(); got != want {
		t.Errorf("Reported\n%swant\n%s", got, want)
	}
}

func TestJudge(t *testing.T) {
	good, bad := &result{Example: &example.Example{Name: "good"}}, &result{Example: &example.Example{Name: "bad"}, differs: []string{"so"}}
	left := &result{Example: &example.Example{Name: "left"}, lacks: []string{"Priority"}}
	for want, results := range map[string][]*result{
		"":                        {good, left},
		"not as expected: bad":    {good, bad},
		"no example was applied":  {left},
		"no example was applied ": {},
	} {
		got := ""
		if err := judge(results); err != nil {
			got = err.Error()
		}
		if got != strings.TrimSpace(want) {
			t.Errorf("Got %q, want %q", got, want)
		}
	}
}
