// Package documents reads objects from YAML and JSON: from a stream of documents, or from files and folders.
package documents

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/internal/rawjson"
)

// errUntyped is the error for a document that may be none of Kubernetes.
var errUntyped = errors.New("it has no apiVersion or no kind")

// Object is an object of a document, or the error for what cannot be read, of which there may be no object.
type Object struct {
	*unstructured.Unstructured
	// Position is where the object begins, or where the error is.
	Position
	// Number is the number of the document in its file. Documents without content have none.
	Number int
	// Text is the document. It is nil for JSON, and for an item of a list.
	Text []byte
	Err  error

	// isOther says that the document is none of Kubernetes, such as the values of a chart.
	isOther bool
}

// Position is a line in a file. The file is "" for the standard input. The line is 0 for what has none, such as a folder.
type Position struct {
	File string
	Line int
}

// String returns FILE:LINE.
func (p Position) String() string {
	name := p.File
	switch {
	case name == "":
		name = "standard input"
	case strconv.Quote(name) != `"`+name+`"`:
		name = strconv.Quote(name)
	}
	if p.Line > 0 {
		name += ":" + strconv.Itoa(p.Line)
	}
	return name
}

// Read returns the objects of all documents, and the items of lists instead of the lists. An error of reading is the last.
func Read(in io.Reader) iter.Seq[Object] {
	return (&reader{in: bufio.NewReader(in), most: math.MaxInt}).objects
}

// reader reads a stream of documents.
type reader struct {
	in *bufio.Reader
	// most is the largest number of bytes between two separators, and of a document with what its aliases stand for.
	most   int
	buffer []byte
	// lines and documents are how many there were.
	lines, documents int
	// copied is the number of bytes that aliases stand for.
	copied int
}

// objects yields the objects of all documents.
func (r *reader) objects(yield func(Object) bool) {
	for {
		before := r.lines
		chunk, err := r.chunk()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil { // The beginning of the next document is lost.
			r.documents++
			yield(Object{Position: Position{Line: r.lines}, Number: r.documents, Err: err})
			return
		}
		documents, line, err := split(chunk)
		for _, d := range documents {
			r.documents++
			for _, o := range r.read(d, before) {
				if !yield(o) {
					return
				}
			}
		}
		if err != nil {
			r.documents++
			if !yield(Object{Position: Position{Line: before + line}, Number: r.documents, Err: err}) {
				return
			}
		}
	}
}

// chunk returns the text before the next separator. A separator without text before it is a part of the text.
//
// Upstream: k8s.io/apimachinery/pkg/util/yaml.YAMLReader, which has no limit and tells no lines.
func (r *reader) chunk() ([]byte, error) {
	r.buffer = r.buffer[:0]
	for {
		start := len(r.buffer)
		switch err := r.readLine(); {
		case errors.Is(err, io.EOF) && start > 0:
			return bytes.Clone(r.buffer), nil
		case err != nil:
			return nil, err
		}
		if comment, ok := bytes.CutPrefix(r.buffer[start:], []byte("---")); ok {
			if comment = bytes.TrimSpace(comment); len(comment) > 0 && comment[0] != '#' {
				return nil, fmt.Errorf("invalid Yaml document separator: %s", comment)
			}
			if start > 0 {
				return bytes.Clone(r.buffer[:start]), nil
			}
		}
		r.buffer = append(r.buffer, '\n')
	}
}

// readLine appends the next line to the buffer, without its end.
func (r *reader) readLine() error {
	start := len(r.buffer)
	for {
		part, err := r.in.ReadSlice('\n')
		if r.buffer = append(r.buffer, part...); len(r.buffer) > r.most {
			r.lines -= bytes.Count(r.buffer[:start], []byte("\n")) - 1
			return fmt.Errorf("the document that begins here has more than %s: write its objects into several documents, such as one file for each namespace", size(r.most))
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && len(r.buffer) == start:
			return err
		}
		break // ReadSlice returns an error after the last line again.
	}
	r.lines++
	if text, ok := bytes.CutSuffix(r.buffer[start:], []byte("\n")); ok {
		r.buffer = r.buffer[:start+len(bytes.TrimSuffix(text, []byte("\r")))]
	}
	return nil
}

// size returns a number of bytes in a unit for people.
func size(bytes int) string {
	if bytes < 1<<20 {
		return strconv.Itoa(bytes) + " bytes"
	}
	return strconv.Itoa(bytes>>20) + " MiB"
}

// document is the text of a document, without a node if it is JSON.
type document struct {
	text []byte
	node *yamlv3.Node
	line int
}

// split returns the documents between two separators: all JSON values, or the YAML document. kubectl and jq write JSON
// values without a separator. A comment is no document. The lines are those of the chunk, also that of the error.
func split(chunk []byte) (documents []document, line int, err error) {
	if !utf8.Valid(chunk) {
		return nil, lineOfFirst(chunk, func(r rune, size int) bool { return r == utf8.RuneError && size == 1 }), errors.New("it is not UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(chunk))
	line = 1
	for from := 0; ; {
		space := len(chunk[from:]) - len(bytes.TrimLeft(chunk[from:], " \t\r\n"))
		line += bytes.Count(chunk[from:from+space], []byte("\n"))
		var value json.RawMessage
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			return documents, 0, nil
		}
		if err == nil {
			documents = append(documents, document{text: value, line: line})
			line += bytes.Count(value, []byte("\n"))
			from = int(decoder.InputOffset())
			continue
		}
		d, lineYAML, errYAML := splitYAML(chunk)
		if errYAML != nil && len(documents) > 0 {
			return documents, line, fmt.Errorf("after a JSON value: %w", err)
		}
		return d, lineYAML, errYAML
	}
}

// lineOfFirst returns the line of the first character that is wrong.
func lineOfFirst(text []byte, wrong func(r rune, size int) bool) int {
	at := 0
	for at < len(text) {
		r, size := utf8.DecodeRune(text[at:])
		if wrong(r, size) {
			break
		}
		at += size
	}
	return 1 + bytes.Count(text[:at], []byte("\n"))
}

// splitYAML returns the YAML document, if it has content. The decoders of objects ignore what follows a document, so other
// text after its end is an error.
func splitYAML(chunk []byte) ([]document, int, error) {
	decoder := yamlv3.NewDecoder(bytes.NewReader(chunk))
	var node, next yamlv3.Node
	err := decoder.Decode(&node)
	if errors.Is(err, io.EOF) {
		return nil, 0, nil
	}
	d := document{text: chunk, node: &node}
	if err != nil {
		d.line = firstLine(chunk)
		return nil, d.lineOf(err), err
	}
	d.line = node.Content[0].Line
	switch err := decoder.Decode(&next); {
	case errors.Is(err, io.EOF) && node.Content[0].Tag == "!!null":
		return nil, 0, nil
	case errors.Is(err, io.EOF):
		if err := checkKeys(&node); err != nil {
			return nil, d.lineOf(err), err
		}
		return []document{d}, 0, nil
	case err == nil:
		return nil, next.Content[0].Line, errors.New("another document follows without a line --- between them")
	default:
		err = fmt.Errorf("after the end of the document: %w", err)
		return nil, d.lineOf(err), err
	}
}

// firstLine returns the first line that is neither empty nor a comment nor a separator.
func firstLine(chunk []byte) int {
	n := 1
	for line := range bytes.Lines(chunk) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && !bytes.HasPrefix(line, []byte("---")) {
			return n
		}
		n++
	}
	return 1
}

// located matches an error of the decoders of YAML and of checkKeys. Their lines are those of the document.
var located = regexp.MustCompile(`(?s)^(after the end of the document: )?(?:yaml: )?(?:line (\d+): )?(.*)$`)

// ofParser matches the errors for which the decoders of YAML tell the line before.
var ofParser = regexp.MustCompile(`^(did not find expected (key|'-' indicator|node content|',' or .*|<.*)|found (undefined tag handle|duplicate %.*|incompatible YAML document))$`)

// lineOf returns the line of an error of the document, as far as it is known.
func (d document) lineOf(err error) int {
	found := located.FindStringSubmatch(err.Error())
	line, errNumber := strconv.Atoi(found[2])
	switch {
	case strings.HasPrefix(found[3], "control characters"):
		return lineOfFirst(d.text, func(r rune, _ int) bool {
			return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r >= 0x7F && r < 0xA0 && r != 0x85 || r == 0xFFFE || r == 0xFFFF
		})
	case errNumber != nil:
		return d.line
	case ofParser.MatchString(found[3]):
		line++
	}
	return min(line, max(1, bytes.Count(d.text, []byte("\n")))) // The end is no line.
}

// checkKeys returns an error for a key that a mapping has twice, of which the decoder of objects keeps one. A mapping may have
// a key that it also merges.
func checkKeys(node *yamlv3.Node) error {
	var keys map[string]bool
	if node.Kind == yamlv3.MappingNode {
		keys = make(map[string]bool, len(node.Content)/2)
	}
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

// read returns the object of a document, the items of a list, or an error in their place. The document begins after a number of
// lines.
func (r *reader) read(d document, before int) []Object {
	o := Object{Unstructured: &unstructured.Unstructured{}, Position: Position{Line: before + d.line}, Number: r.documents}
	isObject, at := rawjson.Value(d.text).IsObject(), place{line: o.Line, json: d.text}
	if d.node != nil {
		root := d.node.Content[0]
		isObject, at, o.Text = root.Kind == yamlv3.MappingNode, place{line: o.Line, before: before, node: root}, d.text
	}
	if err := r.decode(d, &o.Object); err != nil {
		return []Object{{Position: Position{Line: before + d.lineOf(err)}, Number: r.documents, Err: err, isOther: !isObject}}
	}
	out := flatten(o, at)
	if len(out) == 1 && out[0].Unstructured == o.Unstructured {
		out[0].isOther = o.GetAPIVersion() == "" && o.GetKind() == ""
	}
	return out
}

// decode decodes an object. YAML decoders change or refuse some characters of JSON.
func (r *reader) decode(d document, into *map[string]any) error {
	text := d.text
	if d.node != nil {
		weight := weigh(d.node, map[*yamlv3.Node]int{})
		if weight > r.most {
			return fmt.Errorf("it has more than %s with what its aliases stand for", size(r.most))
		}
		r.copied += max(0, weight-len(text))
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

// weigh returns the bytes of the values of a node, with what its aliases stand for. The decoders of YAML bound the number of these
// values, and not their bytes. They refuse a value that contains itself, which has no weight here.
func weigh(n *yamlv3.Node, known map[*yamlv3.Node]int) int {
	if n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	if weight, ok := known[n]; ok {
		return weight
	}
	if n.Anchor != "" {
		known[n] = 0
	}
	weight := 1 + len(n.Value)
	for _, child := range n.Content {
		weight = min(weight+weigh(child, known), math.MaxInt/2)
	}
	if n.Anchor != "" {
		known[n] = weight
	}
	return weight
}

// place is where a value is in its document: a node of YAML or the text of JSON.
type place struct {
	line   int
	before int
	node   *yamlv3.Node
	json   rawjson.Value
}

// items returns the places of the items of a list. It is empty if they are merged into the list.
func (p place) items() (out []place) {
	if p.node == nil {
		return p.itemsOfJSON()
	}
	content := resolved(p.node).Content
	for i := 0; i+1 < len(content); i += 2 {
		if content[i].Value != "items" {
			continue
		}
		for _, item := range resolved(content[i+1]).Content {
			out = append(out, place{line: p.before + item.Line, before: p.before, node: item})
		}
	}
	return out
}

func (p place) itemsOfJSON() (out []place) {
	r := rawjson.Reader{Text: p.json, MaxDepth: rawjson.MaxDepth}
	ok := r.Enter()
	for first := true; ok && r.More('}', first); first = false {
		var name rawjson.Value
		if name, ok = r.Key(); !name.Is("items") {
			ok = ok && r.Skip()
			continue
		}
		line, from := p.line, 0
		ok = r.Next() == '[' && r.Enter()
		for first := true; ok && r.More(']', first); first = false {
			var item rawjson.Value
			item, ok = r.Value()
			at := r.At - len(item)
			line += bytes.Count(p.json[from:at], []byte("\n"))
			from = at
			out = append(out, place{line: line, json: item})
		}
		return out
	}
	return nil
}

// resolved returns what an alias stands for.
func resolved(n *yamlv3.Node) *yamlv3.Node {
	if n.Kind == yamlv3.AliasNode {
		return n.Alias
	}
	return n
}

// flatten returns the items of a list, or the object if it is none.
func flatten(o Object, at place) []Object {
	kind, typed := strings.CutSuffix(o.GetKind(), "List")
	items, exists := o.Object["items"]
	isList := typed && !named(o.Object) || o.GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("List") || areObjects(items)
	fail := func(err error) []Object {
		o.Err = err
		return []Object{o}
	}
	switch {
	case len(o.Object) == 0:
		return nil
	case o.GetAPIVersion() == "" || o.GetKind() == "":
		return fail(errUntyped)
	case o.GetAPIVersion() == "v1" && o.GetKind() == "Status":
		message, _, _ := unstructured.NestedString(o.Object, "message")
		return fail(fmt.Errorf("the answer of the API server is no object: %q", message))
	case !exists || !isList:
		return []Object{o}
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
	places := at.items()
	if len(places) != len(list.Items) {
		places = slices.Repeat([]place{{line: o.Line}}, len(list.Items))
	}
	var out []Object
	for i := range list.Items {
		item := &list.Items[i]
		// API servers leave the kind of items out, unlike kubectl.
		if typed && item.GetKind() == "" {
			item.SetAPIVersion(o.GetAPIVersion())
			item.SetKind(kind)
		}
		out = append(out, flatten(Object{Unstructured: item, Position: Position{Line: places[i].line}, Number: o.Number}, places[i])...)
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
