package documents

import (
	"bytes"
	"math"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// plainDocument returns the object of a document as sigs.k8s.io/yaml decodes it, without parsing the document again and without JSON.
// It returns false for a document that it leaves to sigs.k8s.io/yaml, such as one with tags or aliases. Before some comments,
// sigs.k8s.io/yaml refuses a tab that the decoder of nodes accepts.
func plainDocument(d document) (map[string]any, bool) {
	if bytes.IndexByte(d.text, '!') >= 0 || bytes.IndexByte(d.text, '\t') >= 0 && bytes.IndexByte(d.text, '#') >= 0 {
		return nil, false
	}
	value, ok := plain(d.node.Content[0])
	object, isObject := value.(map[string]any)
	return object, ok && isObject
}

func plain(n *yamlv3.Node) (any, bool) {
	switch {
	case n.Kind == yamlv3.ScalarNode && n.Style == 0:
		return scalar(n.Value)
	case n.Kind == yamlv3.ScalarNode:
		return n.Value, true
	case n.Kind == yamlv3.SequenceNode:
		out := make([]any, len(n.Content))
		for i, child := range n.Content {
			var ok bool
			if out[i], ok = plain(child); !ok {
				return nil, false
			}
		}
		return out, true
	case n.Kind == yamlv3.MappingNode:
		out := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, okKey := plain(n.Content[i])
			name, isText := key.(string)
			value, ok := plain(n.Content[i+1])
			if !okKey || !isText || !ok {
				return nil, false
			}
			out[name] = value
		}
		return out, true
	default:
		return nil, false
	}
}

// float matches the numbers of YAML that have a fraction or an exponent.
var float = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)

// scalar returns the value of a text without quotation marks. YAML 1.1 has more forms of numbers and booleans than 1.2.
//
// Upstream: resolve of go.yaml.in/yaml/v2, and convertNumber of sigs.k8s.io/json.
func scalar(text string) (any, bool) {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return nil, true
	case "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return true, true
	case "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return false, true
	case "<<":
		return nil, false
	}
	switch c := text[0]; {
	case c == '.', strings.HasPrefix(text[1:], "."):
		return nil, false // It may be infinite, or no number.
	case c != '+' && c != '-' && (c < '0' || c > '9'):
		return text, true
	}
	number := strings.ReplaceAll(text, "_", "")
	if n, err := strconv.ParseInt(number, 0, 64); err == nil {
		return n, true
	}
	if !float.MatchString(number) {
		_, err := strconv.ParseUint(number, 0, 64)
		return text, err != nil && !strings.Contains(number, "0b")
	}
	f, err := strconv.ParseFloat(number, 64)
	return f, err == nil && f != math.Trunc(f)
}
