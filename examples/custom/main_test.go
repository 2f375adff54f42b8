package main

import (
	"bytes"
	"os"
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

// TestDocument compares what docs/extending.md quotes with the files.
func TestDocument(t *testing.T) {
	document, err := os.ReadFile("../../docs/extending.md")
	if err != nil {
		t.Fatal(err)
	}
	for file, from := range map[string]string{
		"main.go":                       "func main()",
		"ownerlabel/ownerlabel.go":      "",
		"ownerlabel/ownerlabel_test.go": "func Test(",
		"ownerlabel/testdata/create-deployment-without-owner-is-denied.yaml": "",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		quoted := text[max(0, bytes.Index(text, []byte(from))):]
		if !bytes.Contains(document, append(append([]byte("\n"), quoted...), "```\n"...)) {
			t.Errorf("docs/extending.md does not quote %s as it is", file)
		}
	}
}
