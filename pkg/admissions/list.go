package admissions

import (
	"errors"
	"fmt"
	"iter"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/router"
)

// List is an ordered list of families. Flags, feature gates, the configuration file and the services of a
// process all use the one list that the program was given, so custom plugins are treated exactly as the
// built-in plugins.
type List []admit.Family

// Plugins visits the plugins of all families in order.
func (l List) Plugins() iter.Seq[*admit.Plugin] {
	return func(yield func(*admit.Plugin) bool) {
		for _, f := range l {
			for _, p := range f.Plugins {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// Names returns the names of all plugins in order.
func (l List) Names() []string {
	var names []string
	for p := range l.Plugins() {
		names = append(names, p.Name)
	}
	return names
}

// pluginName and flagName are what a command line can have: names of plugins are in lists that pflag reads as CSV.
var (
	pluginName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$`)
	flagName   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
)

// Check returns an error if two families, two plugins or two plugin flags have the same name, if a plugin has no constructor,
// or if a name cannot be used. That of a family is a part of a path and of the names of webhooks.
func (l List) Check() error {
	var errs []error
	taken := map[string]string{}
	take := func(kind, name, owner string) {
		if other, ok := taken[kind+name]; ok {
			errs = append(errs, fmt.Errorf("%s %s is in the list of families twice: in %s and in %s", kind, name, other, owner))
		}
		taken[kind+name] = owner
	}
	for _, f := range l {
		if wrong := validation.IsDNS1123Label(f.Name); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("family %q: %s", f.Name, wrong[0]))
		}
		take("family", f.Name, "the list")
		for _, p := range f.Plugins {
			if p.New == nil {
				errs = append(errs, fmt.Errorf("family %s: plugin %q has no New", f.Name, p.Name))
			}
			if !pluginName.MatchString(p.Name) {
				errs = append(errs, fmt.Errorf("family %s: plugin %q: want a name of letters and digits, with '.', '_', '-' or '/' between them", f.Name, p.Name))
			}
			take("plugin", p.Name, "family "+f.Name)
			for _, flag := range p.Flags {
				if !flagName.MatchString(flag.Name) {
					errs = append(errs, fmt.Errorf("plugin %s: flag %q: want a name of lower-case letters, digits and '-'", p.Name, flag.Name))
				}
				take("flag", "--"+flag.Name, "plugin "+p.Name)
			}
		}
	}
	return errors.Join(errs...)
}

// Features returns the feature gates that the plugins read, with their defaults. Two
// plugins may read the same gate, but not with different defaults.
func (l List) Features() (featuregate.MutableFeatureGate, error) {
	gate := featuregate.NewFeatureGate()
	for p := range l.Plugins() {
		if err := gate.Add(p.Features); err != nil {
			return nil, fmt.Errorf("feature gates of plugin %s: %w", p.Name, err)
		}
	}
	return gate, nil
}

// Services makes the service of every family. A family without an enabled plugin has a service without
// handlers: a replica with another configuration may have registered the family, so its paths are served
// nevertheless. An error in the configuration of a plugin names the file, the line and the field.
func (l List) Services(d admit.Deps, enabled []string, configs Configs) ([]router.AdmissionService, error) {
	data := map[string][]byte{}
	for _, name := range enabled {
		data[name] = configs[name].Data
	}
	var services []router.AdmissionService
	for _, f := range l {
		s, err := f.Service(d, data)
		if wrong, ok := errors.AsType[*admit.PluginError](err); ok {
			return nil, configs[wrong.Plugin].locate(wrong)
		}
		if err != nil {
			return nil, fmt.Errorf("family %s: %w", f.Name, err)
		}
		services = append(services, s)
	}
	return services, nil
}
