package review

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

// TestCases compares the two for the cases of all plugins.
func TestCases(t *testing.T) {
	var trials []*trial
	for _, f := range admissions.Families() {
		for _, p := range f.Plugins {
			cases, err := admittest.Load(filepath.Join("..", "..", "pkg", "admissions", f.Name, strings.ToLower(p.Name), "testdata"))
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range cases {
				x, err := newTrial(p.Name+"/"+c.Name(), p, c)
				if err != nil {
					t.Fatalf("%s: %v", c.File, err)
				}
				if x != nil {
					trials = append(trials, x)
				}
			}
		}
	}
	if len(trials) < 650 {
		t.Fatalf("There are only %d cases", len(trials))
	}
	run(t, "testdata/cases.yaml", trials)
}
