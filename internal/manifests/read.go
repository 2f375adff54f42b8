package manifests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/klog/v2"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// object is an object of a document, or the error for what cannot be read, of which there may be no object. The text is nil for
// JSON, and for an item of a list.
type object struct {
	*unstructured.Unstructured
	number int
	text   []byte
	err    error
}

// where returns the number of the document, and the kind, the namespace and the name of the object, as far as it has them.
func (o object) where() string {
	document := fmt.Sprintf("document %d", o.number)
	if o.Unstructured == nil {
		return document
	}
	about := strings.TrimSpace(o.GetKind() + " " + klog.KObj(o).String())
	if quoted := strconv.Quote(about); quoted != `"`+about+`"` {
		about = quoted // such as a name with a line end
	}
	if about == "" {
		return document
	}
	return document + ": " + about
}

// read returns the objects of all documents, and the items of lists instead of the lists. Documents without content have no
// number.
func read(in io.Reader) (out []object) {
	chunks := utilyaml.NewYAMLReader(bufio.NewReader(in))
	for number := 1; ; {
		chunk, err := chunks.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil { // The reader has lost the beginning of the next document.
			return append(out, object{number: number, err: err})
		}
		texts, isJSON, err := split(chunk)
		for _, text := range texts {
			out = append(out, document(number, text, isJSON)...)
			number++
		}
		if err != nil {
			out = append(out, object{number: number, err: err})
			number++
		}
	}
}

// split returns the documents between two separators: all JSON values, or the YAML document. kubectl and jq write JSON
// values without a separator. A comment is no document.
func split(chunk []byte) (texts [][]byte, isJSON bool, err error) {
	if !utf8.Valid(chunk) {
		return nil, false, errors.New("it is not UTF-8")
	}
	var values [][]byte
	decoder := json.NewDecoder(bytes.NewReader(chunk))
	for {
		var value json.RawMessage
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			return values, true, nil
		}
		if err == nil {
			values = append(values, value)
			continue
		}
		text, errYAML := splitYAML(chunk)
		if errYAML != nil && len(values) > 0 {
			return values, true, fmt.Errorf("after a JSON value: %w", err)
		}
		return text, false, errYAML
	}
}

// splitYAML returns the YAML document, if it has content. The decoders of objects ignore what follows a document, so other
// text after its end is an error.
func splitYAML(chunk []byte) ([][]byte, error) {
	decoder := yamlv3.NewDecoder(bytes.NewReader(chunk))
	var node, next yamlv3.Node
	if err := decoder.Decode(&node); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	switch err := decoder.Decode(&next); {
	case errors.Is(err, io.EOF) && node.Content[0].Tag == "!!null":
		return nil, nil
	case errors.Is(err, io.EOF):
		if err := checkKeys(&node); err != nil {
			return nil, err
		}
		return [][]byte{chunk}, nil
	case err == nil:
		return nil, errors.New("another document follows without a line --- between them")
	default:
		return nil, fmt.Errorf("after the end of the document: %w", err)
	}
}

// checkKeys returns an error for a key that a mapping has twice, of which the decoder of objects keeps one. A mapping may have
// a key that it also merges.
func checkKeys(node *yamlv3.Node) error {
	keys := map[string]bool{}
	for i, child := range node.Content {
		if node.Kind == yamlv3.MappingNode && i%2 == 0 && child.Kind == yamlv3.ScalarNode {
			if keys[child.Value] {
				return fmt.Errorf("line %d: key %q is there twice", child.Line, child.Value)
			}
			keys[child.Value] = true
		}
		if err := checkKeys(child); err != nil {
			return err
		}
	}
	return nil
}

// document returns the object of a document, the items of a list, or an error in their place.
func document(number int, text []byte, isJSON bool) []object {
	u := unstructured.Unstructured{}
	if err := decode(text, isJSON, &u.Object); err != nil {
		return []object{{number: number, err: err}}
	}
	if isJSON {
		text = nil
	}
	return flatten(object{Unstructured: &u, number: number, text: text})
}

// decode decodes an object. YAML decoders change or refuse some characters of JSON.
func decode(text []byte, isJSON bool, into *map[string]any) error {
	if !isJSON {
		var err error
		if text, err = yaml.YAMLToJSON(text); err != nil {
			return err
		}
	}
	twice, err := kjson.UnmarshalStrict(text, into, kjson.DisallowDuplicateFields)
	if err != nil {
		return fmt.Errorf("it is no object: %w", err)
	}
	return errors.Join(twice...)
}

// flatten returns the items of a list, or the object if it is none.
func flatten(o object) []object {
	kind, typed := strings.CutSuffix(o.GetKind(), "List")
	items, exists := o.Object["items"]
	isList := typed && !named(o.Object) || o.GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("List") || areObjects(items)
	fail := func(err error) []object {
		o.err = err
		return []object{o}
	}
	switch {
	case len(o.Object) == 0:
		return nil
	case o.GetAPIVersion() == "" || o.GetKind() == "":
		return fail(errors.New("it has no apiVersion or no kind"))
	case o.GetAPIVersion() == "v1" && o.GetKind() == "Status":
		message, _, _ := unstructured.NestedString(o.Object, "message")
		return fail(fmt.Errorf("the answer of the API server is no object: %q", message))
	case !exists || !isList:
		return []object{o}
	case items == nil: // API servers write null for no items.
		return nil
	case !o.IsList():
		return fail(errors.New("items is no list"))
	}
	list, err := o.ToList()
	if err != nil {
		return fail(err)
	}
	if list.GetContinue() != "" {
		return fail(errors.New("the list is not complete, because it has metadata.continue"))
	}
	var out []object
	for i := range list.Items {
		item := &list.Items[i]
		// API servers leave the kind of items out, unlike kubectl.
		if typed && item.GetKind() == "" {
			item.SetAPIVersion(o.GetAPIVersion())
			item.SetKind(kind)
		}
		out = append(out, flatten(object{Unstructured: item, number: o.number})...)
	}
	return out
}

// areObjects reports whether all items have a name. A custom resource may have a field items with something else.
func areObjects(items any) bool {
	list, ok := items.([]any)
	return ok && len(list) > 0 && !slices.ContainsFunc(list, func(item any) bool { return !named(item) })
}

// named reports whether a value is an object with a name. A list of an API server has none.
func named(value any) bool {
	object, _ := value.(map[string]any)
	u := unstructured.Unstructured{Object: object}
	return u.GetName() != "" || u.GetGenerateName() != ""
}
