package admissions

import (
	"errors"
	"fmt"
	"iter"
	"strings"

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

// Check returns an error if two families, two plugins or two plugin flags have the same name, if a plugin has no name or no
// constructor, or if a name cannot be used: that of a family is a part of a path and of the names of webhooks, and that of a
// plugin stands in lists of flags.
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
		if len(validation.IsDNS1123Label(f.Name)) > 0 {
			errs = append(errs, fmt.Errorf("family %q: want a name of lower-case letters, digits and '-', such as pods", f.Name))
		}
		take("family", f.Name, "the list")
		for _, p := range f.Plugins {
			if p.Name == "" || p.New == nil {
				errs = append(errs, fmt.Errorf("family %s: plugin %q has no name or no New", f.Name, p.Name))
			}
			if strings.ContainsAny(p.Name, ", ") {
				errs = append(errs, fmt.Errorf("family %s: plugin %q: the name has a comma or a space", f.Name, p.Name))
			}
			take("plugin", p.Name, "family "+f.Name)
			for _, flag := range p.Flags {
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
