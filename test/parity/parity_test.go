// Package parity_test sends every case of every plugin also through the plugin of the same name in
// kube-apiserver, and requires the same outcome.
package parity_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

// entry is one case of one plugin.
type entry struct {
	*admit.Plugin
	*admittest.Case
}

func (e entry) name() string { return e.Plugin.Name + "/" + e.Case.Name() }

// entries returns the cases of all plugins.
func entries(t *testing.T) []entry {
	t.Helper()
	var out []entry
	for _, family := range admissions.Families() {
		for _, p := range family.Plugins {
			cases, err := admittest.Load(filepath.Join("..", "..", "pkg", "admissions", family.Name, strings.ToLower(p.Name), "testdata"))
			if err != nil {
				t.Errorf("Loading the cases of %s: %v", p.Name, err)
			}
			for _, c := range cases {
				out = append(out, entry{p, c})
			}
		}
	}
	return out
}

// tally counts the compared cases, and records why the other cases were skipped.
type tally struct {
	compared int
	skipped  []string
}

// TestParity fails if the outcome of a case differs from the outcome of kube-apiserver's plugin.
func TestParity(t *testing.T) {
	var count tally
	for _, e := range entries(t) {
		switch {
		case !isUpstream(e.Plugin.Name):
			count.skipped = append(count.skipped, e.name()+": kube-apiserver v1.37 has no such plugin")
		case e.Parity.Skip != "":
			count.skipped = append(count.skipped, e.name()+": "+e.Parity.Skip)
		default:
			count.compared++
			t.Run(e.name(), func(t *testing.T) { compare(t, e.Plugin, e.Case) })
		}
	}
	fmt.Printf("Compared %d cases with kube-apiserver, %d were not:\n", count.compared, len(count.skipped))
	for _, s := range count.skipped {
		fmt.Println("  " + s)
	}
	if count.compared == 0 {
		t.Error("Nothing was compared")
	}
}

func compare(t *testing.T, p *admit.Plugin, c *admittest.Case) {
	t.Helper()
	plugin, err := newInTree(t, p.Name, c)
	if c.Want != nil && c.Want.ConfigError != "" {
		if err == nil {
			t.Error("Got a plugin of kube-apiserver, want an error")
		}
		return
	}
	if err != nil {
		t.Fatalf("Making the plugin of kube-apiserver: %v", err)
	}
	for i, step := range c.Steps {
		if step.After.Duration != 0 {
			t.Fatal("The plugins of kube-apiserver have a clock of their own: say parity.skip")
		}
		plugin.ClearActions()
		got := plugin.play(t, c, requestOf(t, &step.Request))
		written, err := plugin.Writes()
		if err != nil {
			t.Fatalf("Reading what was written: %v", err)
		}
		if c.Parity.Unordered {
			slices.SortFunc(written, func(a, b admittest.Write) int { return strings.Compare(a.Name, b.Name) })
		}
		for _, problem := range append(differences(t, c, &step, got), step.Want.DiffWrites(written)...) {
			t.Errorf("Step %d: %s", i+1, problem)
		}
	}
	for _, problem := range plugin.Backend.Problems() {
		t.Error(problem)
	}
}

// differences compares the outcome of kube-apiserver's plugin with the expected outcome of the case.
func differences(t *testing.T, c *admittest.Case, step *admittest.Step, got *admittest.Outcome) []string {
	t.Helper()
	want := step.Want
	if want.Failure != 0 {
		if got.Allowed {
			return []string{"kube-apiserver allows it, ours could not decide"}
		}
		return nil
	}
	if c.Parity.Code != 0 && !*want.Allowed {
		// An error that is not a Status has no reason.
		want.Code, want.Reason = c.Parity.Code, c.Parity.Reason
	}
	want.Added = ""
	if c.Parity.Message != "" {
		want.Message = c.Parity.Message
	}
	if want.Object != nil {
		// Both objects must have been converted.
		kind := requestOf(t, &step.Request).Kind
		want.Object = external(t, internal(t, want.Object), schema.GroupVersionKind(kind))
	}
	got.Audit = withoutPrefixes(got.Audit)
	return want.Differences(got)
}

// withoutPrefixes removes the prefix of an annotation key: kube-apiserver adds the plugin's name, and for
// Postern it adds the webhook's name.
func withoutPrefixes(audit map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range audit {
		out[k[strings.LastIndex(k, "/")+1:]] = v
	}
	return out
}
