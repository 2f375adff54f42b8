package main

import (
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	o, err := parse([]string{"-focus=RuntimeClass,LimitRange", "-columns=postern", "--", "--v=2"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := groupNames(o.groups), []string{"LimitRange", "RuntimeClass"}; !slices.Equal(got, want) {
		t.Errorf("The groups are %q, want %q", got, want)
	}
	if got, want := columnNames(o.columns), []string{offPostern}; !slices.Equal(got, want) {
		t.Errorf("The columns are %q, want %q", got, want)
	}
	if want := []string{"--v=2"}; !slices.Equal(o.flags, want) {
		t.Errorf("The flags of Postern are %q, want %q", o.flags, want)
	}
	for _, args := range [][]string{{"-focus=Quota"}, {"-columns=on"}, {"more"}, {"-print"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

func TestFlagsOfTheColumns(t *testing.T) {
	plugins := []string{"LimitRanger", "NodeRestriction"}
	for _, c := range allColumns() {
		want := "--disable-admission-plugins=LimitRanger,NodeRestriction"
		if c.name == inTree {
			want = "--enable-admission-plugins=LimitRanger,NodeRestriction"
		}
		if got := c.apiServerFlags(plugins); !slices.Equal(got, []string{want}) {
			t.Errorf("The flags of %s are %q, want %q", c.name, got, want)
		}
		if got := len(c.controllerManagerFlags()) > 0; got != (c.name == off) {
			t.Errorf("The controller counts quotas more often in %s: %v", c.name, got)
		}
		if c.postern != (c.name == offPostern) {
			t.Errorf("Postern runs in %s: %v", c.name, c.postern)
		}
	}
}
