package admissions

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/postern-dev/postern/internal/kinds/unversioned"
	"github.com/postern-dev/postern/internal/yamltree"
	"github.com/postern-dev/postern/pkg/admit"
)

// Configs maps plugin names to their configurations.
type Configs map[string]Config

// Config is the configuration of one plugin and its location.
type Config struct {
	// Data is the configuration of the plugin as YAML or JSON. It is nil if the entry of the plugin has none.
	Data []byte

	file, prefix string
	text         []byte
}

// LoadConfigs reads an AdmissionConfiguration, or one of the two legacy formats that kube-apiserver accepts.
// It also reads the files that entries of enabled plugins name, relative to the folder of the configuration
// file. It warns about entries that have no effect.
func (l List) LoadConfigs(file string, enabled []string) (configs Configs, warnings []string, err error) {
	if file == "" {
		return Configs{}, nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("--admission-control-config-file: %w", err)
	}
	configs, warnings, err = l.parseConfigs(file, text, enabled)
	if err == nil && len(configs)+len(warnings) == 0 {
		warnings = []string{noEntry(file)}
	}
	return configs, warnings, err
}

// noEntry is the warning about a file without entries. Each entry has a configuration or a warning.
func noEntry(file string) string {
	return file + ": the file has no entry for a plugin, so it has no effect"
}

// parseConfigs is LoadConfigs for the text of the file.
func (l List) parseConfigs(file string, text []byte, enabled []string) (configs Configs, warnings []string, err error) {
	whole := Config{Data: text, file: file, text: text}
	var top map[string]any
	if err := admit.DecodeConfig(text, &top); err != nil {
		return nil, nil, whole.locate(err)
	}
	if len(top) == 0 {
		return nil, nil, whole.locate(admit.InvalidField("", "the file or its first document is empty, want an AdmissionConfiguration of %s", apiserverv1.SchemeGroupVersion))
	}
	kind, version := stringOf(top["kind"]), stringOf(top["apiVersion"])
	versions := []string{apiserverv1.SchemeGroupVersion.String(), "apiserver.k8s.io/v1alpha1"}
	if kind != "AdmissionConfiguration" || !slices.Contains(versions, version) {
		if configs := whole.unversioned(top); len(configs) > 0 {
			return configs, l.withoutEffect(file, configs, enabled), nil
		}
		return nil, nil, whole.locate(admit.InvalidField("", "kind %q of version %q, want AdmissionConfiguration of %s", kind, version, versions[0]))
	}
	var config apiserverv1.AdmissionConfiguration
	if err := admit.DecodeConfig(text, &config); err != nil {
		return nil, nil, whole.locate(err)
	}
	return whole.entries(l, config.Plugins, enabled)
}

// unversioned returns the configurations in a file of the oldest format, which has the fields of the two plugins without
// an AdmissionConfiguration around them. A plugin has a configuration if the file has its field, even without a value. It
// gets the whole file, and ignores the field of the other plugin. The case of the field is ignored, as in the plugins.
//
// Upstream: a plugin without its field also gets the whole file. ImagePolicyWebhook starts neither with such a file nor
// without one. kube-apiserver wants the fields in this spelling.
func (c Config) unversioned(top map[string]any) Configs {
	configs := Configs{}
	for field := range top {
		switch {
		case strings.EqualFold(field, unversioned.ImagePolicyField):
			configs["ImagePolicyWebhook"] = c
		case strings.EqualFold(field, unversioned.SelectorsField):
			configs["PodNodeSelector"] = c
		}
	}
	return configs
}

func stringOf(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

func (c Config) entries(l List, plugins []apiserverv1.AdmissionPluginConfiguration, enabled []string) (Configs, []string, error) {
	configs, seen, names := Configs{}, map[string]bool{}, l.Names()
	var warnings []string
	for i, p := range plugins {
		at := fmt.Sprintf("plugins[%d]", i)
		up, isUpstream := upstreamByName()[p.Name]
		switch {
		case seen[p.Name]:
			return nil, nil, c.locate(admit.InvalidField(at+".name", "a second entry for %s", p.Name))
		case slices.Contains(names, p.Name):
		case isUpstream && (up.through || up.excuse != ""):
			warnings = append(warnings, fmt.Sprintf("%s: the entry for %s has no effect, it is not in Postern", c.file, p.Name))
		default:
			return nil, nil, c.locate(admit.InvalidField(at+".name", "%s", l.unknown(p.Name)))
		}
		seen[p.Name] = true
		if !slices.Contains(enabled, p.Name) {
			if slices.Contains(names, p.Name) {
				warnings = append(warnings, notEnabled(c.file, p.Name))
			}
			continue
		}
		config := Config{file: c.file, prefix: at + ".configuration", text: c.text}
		switch {
		case p.Configuration != nil:
			config.Data = p.Configuration.Raw
		case p.Path != "":
			path := p.Path
			if !filepath.IsAbs(path) {
				path = filepath.Join(filepath.Dir(c.file), path)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return nil, nil, c.locate(admit.InvalidField(at+".path", "%w", err))
			}
			config = Config{Data: data, file: path, text: data}
		}
		configs[p.Name] = config
	}
	return configs, warnings, nil
}

// withoutEffect returns a warning for each configuration of a plugin that is not enabled.
func (l List) withoutEffect(file string, configs Configs, enabled []string) []string {
	var warnings []string
	for _, name := range l.Names() {
		if _, ok := configs[name]; ok && !slices.Contains(enabled, name) {
			warnings = append(warnings, notEnabled(file, name))
		}
	}
	return warnings
}

// notEnabled is the warning about an entry of a plugin that is not enabled. In kube-apiserver the plugin may be on by default.
func notEnabled(file, plugin string) string {
	return fmt.Sprintf("%s: the entry for %s has no effect, because the plugin is not enabled, see --%s", file, plugin, enableFlag)
}

// locate prepends the file and the line to an error about the configuration. Like in a Mistake, the line is that of the
// field or of its closest parent.
func (c Config) locate(err error) error {
	if c.file == "" {
		return err
	}
	wrong, ok := errors.AsType[*admit.ConfigError](err)
	if !ok {
		// The error is about another input of the plugin, such as a flag.
		return err
	}
	line := wrong.Line
	if line == 0 || c.prefix != "" {
		line = 1
		if tree, parseErr := yamltree.Parse(c.text); parseErr == nil {
			line = cmp.Or(tree.Find(yamltree.Join(c.prefix, wrong.Field)).Line, tree.Line())
		}
	}
	return fmt.Errorf("%s:%d: %w", c.file, line, err)
}
