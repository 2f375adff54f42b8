// Package example reads the manifests of the folder examples. Each says in its leading comments what it
// shows and how it ends, so that the demo can tell whether it did. examples/README.md has the format.
package example

import (
	"errors"
	"fmt"
	"strings"
)

// Example is one manifest and what is expected of it.
type Example struct {
	// Name is the file's name without its ending.
	Name string
	// Plugins are those of Postern that it needs.
	Plugins []string
	// Config is the name of the file with Postern's AdmissionConfiguration that it needs, or empty.
	Config string
	// As sends the request; the setup is the admin's.
	As User
	// Early says that the setup is to be there before Postern is.
	Early bool
	// Setup are all documents but the last. They have to be stored.
	Setup []Document
	// Request is the last document, which the expectations are about.
	Request Document
	// Refused is the text that the refusal contains; empty if the request is to be stored.
	Refused string
	// Fields are what the stored object is to say.
	Fields []Field
}

// User is somebody to impersonate. Without a name it is the admin.
type User struct {
	Name   string
	Groups []string
}

// Field is a path into the stored object, as for kubectl -o jsonpath, and the value there.
type Field struct {
	Path string
	Want string
}

// Parse reads a manifest. The error names every mistake, with its line.
func Parse(name, text string) (*Example, error) {
	e := &Example{Name: name}
	lines := strings.Split(text, "\n")
	header := 0
	for header < len(lines) && (strings.HasPrefix(lines[header], "#") || strings.TrimSpace(lines[header]) == "") {
		header++
	}
	p := &parser{example: e}
	for i, line := range lines[:header] {
		p.at(i+1, p.directive(line))
	}
	for i, line := range lines[header:] {
		if key, _, ok := directive(line); ok && p.known(key) {
			p.at(header+i+1, fmt.Errorf("%q is below the leading comments, where it has no effect", key))
		}
	}
	p.errs = append(p.errs, p.missing())
	documents, err := split(lines[header:], header)
	p.errs = append(p.errs, err)
	if len(documents) > 0 {
		last := len(documents) - 1
		e.Setup, e.Request = documents[:last], documents[last]
	}
	if e.Early && len(documents) == 1 {
		p.errs = append(p.errs, errors.New("there is no setup, which is all documents but the last"))
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return e, nil
}
