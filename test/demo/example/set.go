package example

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Set is all examples of a folder, in the order of their names.
type Set struct {
	dir      string
	Examples []*Example
}

var fileName = regexp.MustCompile(`^[0-9]{2}-[a-z0-9-]+\.yaml$`)

// Load reads the manifests of a folder. Every YAML file there is an example, or the configuration that
// examples name.
func Load(dir string) (*Set, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	s := &Set{dir: dir}
	var errs []error
	var others []string
	for _, entry := range entries {
		name := entry.Name()
		switch ending := filepath.Ext(name); {
		case entry.IsDir() || ending != ".yaml" && ending != ".yml" && ending != ".json":
		case !fileName.MatchString(name):
			others = append(others, name)
		default:
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return nil, err
			}
			e, err := Parse(strings.TrimSuffix(name, ".yaml"), string(text))
			if errs = append(errs, err); err == nil {
				s.Examples = append(s.Examples, e)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(s.Examples) == 0 {
		return nil, fmt.Errorf("%s holds no example", dir)
	}
	return s, s.checkConfigs(others)
}

// checkConfigs wants one configuration at most, because there is one Postern, and no file that is nothing.
func (s *Set) checkConfigs(others []string) error {
	var errs []error
	var config string
	for _, e := range s.Examples {
		switch {
		case e.Config == "":
		case config != "" && config != e.Config:
			errs = append(errs, fmt.Errorf("%s: the config is %s, but another example's is %s", e.Name, e.Config, config))
		case !slices.Contains(others, e.Config):
			errs = append(errs, fmt.Errorf("%s: there is no %s", e.Name, filepath.Join(s.dir, e.Config)))
		default:
			config = e.Config
		}
	}
	for _, name := range others {
		if name != config {
			errs = append(errs, fmt.Errorf("%s: neither a config that an example names, nor called as an example is, 01-some-words.yaml", name))
		}
	}
	return errors.Join(errs...)
}

// Plugins are those that the examples need together.
func (s *Set) Plugins() []string {
	var names []string
	for _, e := range s.Examples {
		names = append(names, e.Plugins...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Config is the path of the configuration that examples need, or empty.
func (s *Set) Config() string {
	for _, e := range s.Examples {
		if e.Config != "" {
			return filepath.Join(s.dir, e.Config)
		}
	}
	return ""
}

// Lacks returns the plugins of the example that are not among those.
func (e *Example) Lacks(plugins []string) []string {
	return slices.DeleteFunc(slices.Clone(e.Plugins), func(name string) bool { return slices.Contains(plugins, name) })
}
