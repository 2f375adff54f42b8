package main

import (
	"bytes"
	"strings"
	"testing"

	"example.com/custom/costcenter"

	"github.com/postern-dev/postern/cmd/postern/app"
	"github.com/postern-dev/postern/pkg/admissions"
)

// TestProgram is about the command line of the binary: the plugin's name, its feature gate, and its configuration.
func TestProgram(t *testing.T) {
	program := app.Program{Families: append(admissions.Families(), acme()), Services: []app.ServiceFunc{costcenter.Service}}
	for args, want := range map[string]string{
		"--help":                               "TeamLabelInheritance=true|false",
		"--enable-admission-plugins=TeamLable": "did you mean TeamLabel?",
	} {
		var out bytes.Buffer
		program.Run(t.Context(), []string{args}, &out, &out)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: got %s, want %q", args, out.String(), want)
		}
	}
}
