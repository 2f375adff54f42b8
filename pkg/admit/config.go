package admit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/internal/rawjson"
	"github.com/postern-dev/postern/internal/yamltree"
)

// ConfigError is an error in a configuration. The reader of the file adds the name of
// the file and the line of the field.
type ConfigError struct {
	// Field is a path such as limits[0].qps, "" for the document.
	Field string
	// Line is the line of a syntax error, or 0 if the line is unknown.
	Line int
	// Err says what is wrong. It does not repeat the field.
	Err error
}

func (e *ConfigError) Error() string {
	if e.Field == "" {
		return e.Err.Error()
	}
	return e.Field + ": " + e.Err.Error()
}

func (e *ConfigError) Unwrap() error { return e.Err }

// PluginError is an error of the New func of a plugin.
type PluginError struct {
	// Plugin is the name of the plugin, and Err the error that New returned.
	Plugin string
	Err    error
}

func (e *PluginError) Error() string { return "plugin " + e.Plugin + ": " + e.Err.Error() }

func (e *PluginError) Unwrap() error { return e.Err }

// InvalidField returns a ConfigError about one field.
func InvalidField(field, format string, args ...any) error {
	return &ConfigError{Field: field, Err: fmt.Errorf(format, args...)}
}

var (
	strictField = regexp.MustCompile(`^(unknown|duplicate) field "(.*)"$`)
	yamlLine    = regexp.MustCompile(`^(?:error converting YAML to JSON: )?yaml: (?:unmarshal errors:\n\s*)?line (\d+): (.*)`)
)

// LoadConfig returns the configuration of a plugin whose defaults are zero values.
// Without data it returns the defaults. See DecodeConfig.
func LoadConfig[T any](data []byte) (T, error) {
	var config T
	if len(data) == 0 {
		return config, nil
	}
	err := DecodeConfig(data, &config)
	return config, err
}

// DecodeConfig decodes YAML or JSON over the defaults in into. An unknown field, a
// duplicate field and a second document are errors, although kube-apiserver accepts
// some of them, because an ignored field is a hidden mistake. Empty documents after
// the first one are ignored, such as that after --- at the end. The error is a
// *ConfigError.
func DecodeConfig(data []byte, into any) error {
	if line := secondDocument(data); line > 0 {
		return &ConfigError{Line: line, Err: errors.New("a second document, want one")}
	}
	doc, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return unreadable(data, err)
	}
	strict, err := kjson.UnmarshalStrict(doc, into)
	typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case ok && rawjson.PathAt(doc, typeErr.Offset) == "":
		return &ConfigError{Err: errors.New("want a mapping")}
	case ok:
		return &ConfigError{Field: rawjson.PathAt(doc, typeErr.Offset), Err: fmt.Errorf("got %s, want %s", typeErr.Value, typeErr.Type)}
	case err != nil:
		return &ConfigError{Err: err}
	case len(strict) > 0:
		if m := strictField.FindStringSubmatch(strict[0].Error()); m != nil {
			return &ConfigError{Field: m[2], Err: errors.New(m[1] + " field")}
		}
		return &ConfigError{Err: strict[0]}
	}
	return nil
}

// DecodeVersionedConfig is DecodeConfig for a configuration with an apiVersion and a
// kind. Got is the TypeMeta inside into.
func DecodeVersionedConfig(data []byte, into any, got *metav1.TypeMeta, apiVersion, kind string) error {
	if err := DecodeConfig(data, into); err != nil {
		return err
	}
	switch {
	case got.APIVersion != apiVersion:
		return InvalidField("apiVersion", "want %s, not %q", apiVersion, got.APIVersion)
	case got.Kind != kind:
		return InvalidField("kind", "want %s, not %q", kind, got.Kind)
	}
	return nil
}

// unreadable moves the line number from the text of a YAML error into Line. Field is
// set for a field that is there twice.
func unreadable(data []byte, err error) error {
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		return &ConfigError{Err: err}
	}
	line, atoiErr := strconv.Atoi(m[1])
	if atoiErr != nil {
		return &ConfigError{Err: err}
	}
	wrong := &ConfigError{Line: line, Err: errors.New(m[2])}
	if tree, parseErr := yamltree.Parse(data); parseErr == nil {
		for _, f := range tree.Duplicates() {
			if f.Line == line {
				wrong.Field = f.Path
			}
		}
	}
	return wrong
}

// secondDocument returns the line at which a second document begins, or 0. Decoders
// read the first document and ignore the others. A later document without content
// counts as none, but a first one does, because kube-apiserver reads no other.
func secondDocument(data []byte) int {
	dec := yamlv3.NewDecoder(bytes.NewReader(data))
	var first yamlv3.Node
	if dec.Decode(&first) != nil {
		return 0
	}
	for {
		var next yamlv3.Node
		if dec.Decode(&next) != nil {
			return 0
		}
		if len(next.Content) > 0 && next.Content[0].Tag != "!!null" {
			return next.Content[0].Line
		}
	}
}
