package admit

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// ConfigError is a mistake in a configuration. Whoever read the file adds its
// name and the line of the field.
type ConfigError struct {
	// Field is a path such as limits[0].qps, "" for the document.
	Field string
	Err   error
}

func (e *ConfigError) Error() string {
	if e.Field == "" {
		return e.Err.Error()
	}
	return e.Field + ": " + e.Err.Error()
}

func (e *ConfigError) Unwrap() error { return e.Err }

// PluginError is why a plugin could not be made.
type PluginError struct {
	Plugin string
	Err    error
}

func (e *PluginError) Error() string { return "plugin " + e.Plugin + ": " + e.Err.Error() }

func (e *PluginError) Unwrap() error { return e.Err }

// InvalidField says what is wrong with a field of a configuration.
func InvalidField(field, format string, args ...any) error {
	return &ConfigError{Field: field, Err: fmt.Errorf(format, args...)}
}

var strictField = regexp.MustCompile(`^(unknown|duplicate) field "(.*)"$`)

// DecodeConfig decodes YAML or JSON into a plugin's configuration, over the
// defaults that it holds. A field that into does not have, or that is there
// twice, is an error, where kube-apiserver lets some of them pass: silence hides
// mistakes. The error is a *ConfigError.
func DecodeConfig(data []byte, into any) error {
	doc, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return &ConfigError{Err: err}
	}
	strict, err := kjson.UnmarshalStrict(doc, into)
	var typeErr *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typeErr):
		return &ConfigError{Field: typeErr.Field, Err: fmt.Errorf("want %s, not a %s", typeErr.Type, typeErr.Value)}
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
