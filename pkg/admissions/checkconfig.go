package admissions

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/yamltree"
	"github.com/postern-dev/postern/pkg/admit"
)

// Mistake is one mistake in a configuration file.
type Mistake struct {
	// File is the path of the file with the mistake. It is "" if an enabled plugin has no entry in any file.
	File string
	// Line is the line of the field or, if the field is missing, of its closest parent. It is 1 if there is neither.
	Line int
	// Plugin is the plugin whose configuration has the mistake, or "" for the AdmissionConfiguration itself.
	Plugin string
	// Field is a path such as limits[0].qps in the configuration of the plugin, or in the AdmissionConfiguration. It is ""
	// for the whole of it.
	Field string
	// Err says what is wrong, without file, line and field.
	Err error
}

func (m Mistake) String() string {
	var out strings.Builder
	if m.File != "" {
		fmt.Fprintf(&out, "%s:%d: ", m.File, m.Line)
	}
	if m.Plugin != "" {
		fmt.Fprintf(&out, "plugin %s: ", m.Plugin)
	}
	if m.Field != "" {
		fmt.Fprintf(&out, "%s: ", m.Field)
	}
	return out.String() + m.Err.Error()
}

// CheckedConfig is the result of CheckConfig.
type CheckedConfig struct {
	// Plugins are the plugins that have a configuration, in the order of the list.
	Plugins []string
	// Warnings name entries and settings that have no effect, such as the entry of a plugin that is not enabled.
	Warnings []string
	// Mistakes are sorted by line, and those of the configuration file come before those of other files. It is empty if
	// the configuration is valid.
	Mistakes []Mistake
}

// CheckConfig returns all mistakes in a configuration file, and in the files that its entries name. LoadConfigs and
// Services, which a process calls at its start, return the first mistake only. CheckConfig removes each field with a
// mistake from the document, and checks the rest, until there is no mistake left. It checks every configuration, and the
// enabled plugins that have none. It makes each plugin from the Deps that deps returns, so plugins must not use a cluster in
// their New.
//
// A mistake can hide others: a file that is no YAML is not checked further, nor is a plugin's configuration of another
// version.
func (l List) CheckConfig(file string, enabled []string, deps func() (admit.Deps, error)) (*CheckedConfig, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c := &configCheck{list: l, deps: deps, result: &CheckedConfig{}}
	whole := newDocument(file, "", text)
	var configs Configs
	c.examine(whole, text, func(text []byte) error {
		var err error
		configs, c.result.Warnings, err = l.parseConfigs(file, text, l.Names())
		return err
	})
	// The check removes mistakes, so a configuration may be missing only in what is left.
	intact := len(c.result.Mistakes) == 0
	if intact && len(configs)+len(c.result.Warnings) == 0 {
		c.result.Warnings = append(c.result.Warnings, noEntry(file))
	}
	c.result.Warnings = append(c.result.Warnings, l.withoutEffect(file, configs, enabled)...)
	for _, name := range l.Names() {
		config, isEnabled := configs[name], slices.Contains(enabled, name)
		switch {
		case config.Data != nil:
			c.result.Plugins = append(c.result.Plugins, name)
		case !isEnabled || !intact:
			continue
		}
		mistakes := len(c.result.Mistakes)
		c.examine(config.document(whole, name), config.Data, func(data []byte) error { return c.start(name, data) })
		if len(c.result.Mistakes) == mistakes && isEnabled {
			c.result.Warnings = append(c.result.Warnings, c.warnings...)
		}
	}
	slices.SortStableFunc(c.result.Mistakes, func(a, b Mistake) int {
		if a.File != b.File {
			return cmp.Compare(order(a.File == file), order(b.File == file))
		}
		return cmp.Compare(a.Line, b.Line)
	})
	return c.result, c.err
}

// order is a sort key: 0 if first is true, or else 1.
func order(first bool) int {
	if first {
		return 0
	}
	return 1
}

type configCheck struct {
	list   List
	deps   func() (admit.Deps, error)
	result *CheckedConfig
	// warnings are those of the last start.
	warnings []string
	// err is the error of deps.
	err error
}

// document is the text of a configuration. Its tree is nil if the text is not valid YAML.
type document struct {
	file, plugin string
	tree         *yamltree.Tree
	// line is where a document without a tree stands.
	line int
	// duplicates are the second and later fields of the same key.
	duplicates []yamltree.Field
}

func newDocument(file, plugin string, text []byte) *document {
	d := &document{file: file, plugin: plugin}
	if tree, err := yamltree.Parse(text); err == nil {
		d.tree, d.duplicates = tree, tree.Duplicates()
	}
	return d
}

// document returns the document of the configuration of a plugin. An inline configuration is a part of the whole file.
func (c Config) document(whole *document, plugin string) *document {
	switch {
	case c.file != whole.file:
		return newDocument(c.file, plugin, c.text)
	case whole.tree == nil:
		return &document{file: c.file, plugin: plugin}
	case c.Data == nil:
		return &document{file: c.file, plugin: plugin, line: whole.tree.Find(c.prefix).Line}
	}
	tree, _ := whole.tree.Sub(c.prefix)
	return &document{file: c.file, plugin: plugin, tree: tree}
}

// start makes a plugin with a configuration, as a process does at its start.
func (c *configCheck) start(name string, data []byte) error {
	var deps admit.Deps
	if deps, c.err = c.deps(); c.err != nil {
		return nil //nolint:nilerr // c.err ends the check
	}
	c.warnings = nil
	deps.Warn = func(plugin, message string) { c.warnings = append(c.warnings, plugin+": "+message) }
	_, err := c.list.Services(deps, []string{name}, Configs{name: {Data: data}})
	return err
}

// examine adds the mistakes of a document to the result. The check of the original text decides whether there are any.
func (c *configCheck) examine(d *document, original []byte, check func([]byte) error) {
	first := check(original)
	if first == nil {
		return
	}
	before := len(c.result.Mistakes)
	for _, f := range d.duplicates {
		c.add(d, f, fmt.Errorf("key %q already set in map", f.Key))
	}
	wrong, ok := errors.AsType[*admit.ConfigError](first)
	if ok && wrong.Line > 0 && !slices.ContainsFunc(d.duplicates, func(f yamltree.Field) bool { return f.Line == wrong.Line }) {
		c.add(d, yamltree.Field{Line: wrong.Line}, wrong.Err)
	}
	if d.tree != nil {
		c.prune(d, check)
	}
	if len(c.result.Mistakes) == before {
		c.unlocated(d, first)
	}
}

// prune adds each mistake of a document to the result and removes its field, until the check passes or nothing is left to
// remove.
func (c *configCheck) prune(d *document, check func([]byte) error) {
	var removed []string
	for {
		text, err := d.tree.Text()
		if err != nil {
			c.unlocated(d, err)
			return
		}
		err = check(text)
		if err == nil {
			return
		}
		wrong := configErrors(err)
		var fields []yamltree.Field
		for _, w := range wrong {
			fields = append(fields, d.tree.Find(w.Field))
		}
		if len(wrong) == 0 && len(removed) == 0 {
			c.unlocated(d, err)
		}
		var paths []string
		progress := false
		for i, f := range fields {
			// A field that is missed now because it was removed is no mistake of the author.
			if !slices.ContainsFunc(removed, func(r string) bool { return yamltree.Contains(f.Path, r) }) {
				c.add(d, f, wrong[i].Err)
			}
			paths = append(paths, f.Path)
			progress = d.tree.Remove(f) || progress
		}
		if removed = append(removed, paths...); !progress {
			return
		}
	}
}

// configErrors returns all ConfigErrors in err.
func configErrors(err error) []*admit.ConfigError {
	switch e := err.(type) { //nolint:errorlint // the tree of errors is walked here
	case nil:
		return nil
	case *admit.ConfigError:
		return []*admit.ConfigError{e}
	case interface{ Unwrap() []error }:
		var out []*admit.ConfigError
		for _, each := range e.Unwrap() {
			out = append(out, configErrors(each)...)
		}
		return out
	}
	return configErrors(errors.Unwrap(err))
}

// unlocated adds an error that names no field.
func (c *configCheck) unlocated(d *document, err error) {
	if wrong, ok := errors.AsType[*admit.PluginError](err); ok {
		err = wrong.Err
	}
	if wrong, ok := errors.AsType[*admit.ConfigError](err); ok {
		c.add(d, yamltree.Field{Path: wrong.Field}, wrong.Err)
		return
	}
	c.add(d, yamltree.Field{}, err)
}

func (c *configCheck) add(d *document, f yamltree.Field, err error) {
	m := Mistake{File: d.file, Line: f.Line, Plugin: d.plugin, Field: f.Path, Err: err}
	if m.Line == 0 && d.tree != nil {
		m.Line = d.tree.Line()
	}
	m.Line = max(1, m.Line, d.line)
	c.result.Mistakes = append(c.result.Mistakes, m)
}
