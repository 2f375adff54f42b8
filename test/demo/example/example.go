// Package example reads the manifests of the folder examples. The leading comments of a manifest state what
// the manifest shows and which outcome it expects. The demo compares the outcome with them.
// examples/README.md describes the format.
package example

import (
	"errors"
	"fmt"
	"strings"
)

// Example is one manifest and its expected outcome.
type Example struct {
	// Name is the file's name without its ending.
	Name string
	// Plugins are the Postern plugins that the example needs.
	Plugins []string
	// Config is the name of the AdmissionConfiguration file that the example needs, or empty.
	Config string
	// Kubernetes is the minimum Kubernetes version, such as v1.35, or empty.
	Kubernetes string
	// As is the user that sends the request. The admin applies the setup.
	As User
	// Early means that the demo applies the setup before it starts Postern.
	Early bool
	// Connect is exec or attach if the request is a connection to the pod in the last document. Otherwise it is empty,
	// and the request is to store the last document.
	Connect string
	// Setup holds all documents but the last, or all documents if the request is a connection. The API server must
	// store all of them.
	Setup []Document
	// Request is the last document. The expectations apply to it.
	Request Document
	// Refused is a text that the denial must contain. It is empty if the request must be stored.
	Refused string
	// Fields are the expected values in the stored object.
	Fields []Field
}

// User is a user to impersonate. An empty name means the admin.
type User struct {
	Name   string
	Groups []string
}

// Field is a kubectl -o jsonpath path into the stored object and the expected value at that path.
type Field struct {
	Path string
	Want string
}

// Parse reads a manifest. The error lists every mistake with its line.
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
		if e.Connect != "" {
			e.Setup = documents
		}
		if e.Connect != "" && e.Request.Kind() != "Pod" {
			p.errs = append(p.errs, errors.New("connect: the last document is not a Pod"))
		}
	}
	if e.Early && len(documents) > 0 && len(e.Setup) == 0 {
		p.errs = append(p.errs, errors.New("there is no setup, which is all documents but the last"))
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return e, nil
}
