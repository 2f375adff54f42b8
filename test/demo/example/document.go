package example

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// Document is one object of a manifest.
type Document struct {
	Text   string
	Object map[string]any
}

// Kind is the object's kind.
func (d Document) Kind() string {
	kind, _ := d.Object["kind"].(string)
	return kind
}

// Name is the object's name.
func (d Document) Name() string { return d.metadata("name") }

// Namespace is the object's namespace, if the manifest sets it.
func (d Document) Namespace() string { return d.metadata("namespace") }

func (d Document) metadata(key string) string {
	metadata, _ := d.Object["metadata"].(map[string]any)
	value, _ := metadata[key].(string)
	return value
}

// split reads the documents in the lines. The number of lines before them is added to every line number.
func split(lines []string, before int) ([]Document, error) {
	var documents []Document
	var errs []error
	start := 0
	for i := 0; i <= len(lines); i++ {
		if i < len(lines) && strings.TrimRight(lines[i], " \r") != "---" {
			continue
		}
		text := strings.Join(lines[start:i], "\n")
		d, err := parse(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("the document at line %d: %w", before+start+1, err))
		} else if d.Object != nil {
			documents = append(documents, d)
		}
		start = i + 1
	}
	if len(documents) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("there is no object"))
	}
	return documents, errors.Join(errs...)
}

// parse parses a document. It returns no object for an empty document.
func parse(text string) (Document, error) {
	d := Document{Text: text}
	if err := yaml.UnmarshalStrict([]byte(text), &d.Object); err != nil {
		return d, err
	}
	// kubectl apply needs a name to find the object again.
	if d.Object != nil && (d.Kind() == "" || d.Name() == "") {
		return d, errors.New("it has no kind or no name")
	}
	return d, nil
}

// In returns the object's value at the path, as kubectl -o jsonpath prints it. It returns an empty string if
// the object has no value there.
func (f Field) In(object map[string]any) (string, error) {
	path := jsonpath.New(f.Path).AllowMissingKeys(true)
	if err := path.Parse("{" + f.Path + "}"); err != nil {
		return "", fmt.Errorf("%s: %w", f.Path, err)
	}
	var b strings.Builder
	if err := path.Execute(&b, object); err != nil {
		return "", fmt.Errorf("%s: %w", f.Path, err)
	}
	return b.String(), nil
}
