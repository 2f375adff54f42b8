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

// Load reads the manifests of a folder. Every YAML file there must be an example or the configuration that
// the examples name.
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

// checkConfigs checks that the examples name at most one configuration, because the demo runs one Postern. It
// also checks that every file is an example or that configuration.
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

// Plugins returns all plugins that the examples need.
func (s *Set) Plugins() []string {
	var names []string
	for _, e := range s.Examples {
		names = append(names, e.Plugins...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Config returns the path of the configuration that the examples need, or an empty string.
func (s *Set) Config() string {
	for _, e := range s.Examples {
		if e.Config != "" {
			return filepath.Join(s.dir, e.Config)
		}
	}
	return ""
}

// Lacks returns the unmet requirements of the example: plugins that are not in the list, and a newer Kubernetes.
func (e *Example) Lacks(plugins []string, version string) []string {
	lacks := slices.DeleteFunc(slices.Clone(e.Plugins), func(name string) bool { return slices.Contains(plugins, name) })
	if minor(version) < minor(e.Kubernetes) {
		lacks = append(lacks, "Kubernetes "+e.Kubernetes)
	}
	return lacks
}

// minor returns the minor version, such as 35 for v1.35.2, or 0 without a version.
func minor(version string) int {
	var n int
	_, _ = fmt.Sscanf(version, "v1.%d", &n)
	return n
}
