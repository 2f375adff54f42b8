package admissions

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/internal/suggest"
	"github.com/postern-dev/postern/pkg/admit"
)

// Selection holds the flags that enable plugins: kube-apiserver's flags, with the same rules, and
// --api-server-plugins.
type Selection struct {
	// Enable has the names of --enable-admission-plugins, and Disable those of --disable-admission-plugins.
	Enable, Disable []string
	// Control has the names of --admission-control. It is nil if the flag was not given.
	Control []string
	// APIServer has the names of --api-server-plugins, or the single name "default" or "none".
	APIServer []string
}

const (
	enableFlag  = "enable-admission-plugins"
	disableFlag = "disable-admission-plugins"
	controlFlag = "admission-control"
)

// AddFlags adds the flags to fs.
func (s *Selection) AddFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&s.Enable, enableFlag, nil, "Admission plugins to run besides those that are on by default, as a comma-delimited list. The order is irrelevant.")
	fs.StringSliceVar(&s.Disable, disableFlag, nil, "Admission plugins not to run although they are on by default. A name that is enabled too is run, with a warning.")
	fs.StringSliceVar(&s.Control, controlFlag, nil, "Exactly these admission plugins and no others. Deprecated: use --enable-admission-plugins and --disable-admission-plugins, which cannot be given together with it.")
	fs.StringSliceVar(&s.APIServer, admit.APIServerFlag, []string{"default"}, `What the API server already runs: "default" for the plugins that are on by default in kube-apiserver, "none", or a list. A plugin that is on by default is left out if the API server runs it; one that is named in another flag always runs.`)
}

// Enabled returns the enabled plugins, in the order of the list, and warnings. A plugin that kube-apiserver
// does not have is off by default. The error names all mistakes.
func (s *Selection) Enabled(l List) (names, warnings []string, err error) {
	if s.Control != nil && (s.Enable != nil || s.Disable != nil) {
		return nil, nil, fmt.Errorf("--%s cannot be given together with --%s or --%s", controlFlag, enableFlag, disableFlag)
	}
	err = errors.Join(l.known(enableFlag, s.Enable), l.known(disableFlag, s.Disable), l.known(controlFlag, s.Control))
	running, apiErr := s.apiServer()
	if err = errors.Join(err, apiErr); err != nil {
		return nil, nil, err
	}
	upstream := upstreamByName()
	for _, name := range l.Names() {
		on := upstream[name].defaultOn && !running[name]
		switch {
		case s.Control != nil:
			on = slices.Contains(s.Control, name)
		case slices.Contains(s.Enable, name):
			if slices.Contains(s.Disable, name) {
				warnings = append(warnings, fmt.Sprintf("%s is in both --%s and --%s: it runs", name, enableFlag, disableFlag))
			}
			on = true
		case slices.Contains(s.Disable, name):
			on = false
		}
		if on {
			names = append(names, name)
		}
	}
	return names, warnings, nil
}

// known returns an error for each name in a flag that is not in the list.
func (l List) known(flag string, names []string) error {
	exists := l.Names()
	var errs []error
	for _, name := range names {
		p := upstreamByName()[name]
		switch {
		case slices.Contains(exists, name):
		case p.through:
			errs = append(errs, fmt.Errorf("--%s: %s is what Postern itself is called through, it runs in the API server", flag, name))
		case p.excuse != "":
			errs = append(errs, fmt.Errorf("--%s: %s is not in Postern: %s", flag, name, p.excuse))
		default:
			errs = append(errs, fmt.Errorf("--%s: %s", flag, l.unknown(name)))
		}
	}
	return errors.Join(errs...)
}

// unknown returns an error for an unknown plugin name, and suggests the most similar name.
func (l List) unknown(name string) string {
	names := l.Names()
	if likeliest := suggest.Name(name, names); likeliest != "" {
		return fmt.Sprintf("there is no plugin %q, did you mean %s?", name, likeliest)
	}
	return fmt.Sprintf("there is no plugin %q; there are: %s", name, strings.Join(names, ", "))
}

// APIServerPlugins returns the sorted names of the plugins that the API server already runs.
func (s *Selection) APIServerPlugins() ([]string, error) {
	running, err := s.apiServer()
	maps.DeleteFunc(running, func(_ string, runs bool) bool { return !runs })
	return slices.Sorted(maps.Keys(running)), err
}

// apiServer returns the plugins that the API server already runs.
func (s *Selection) apiServer() (map[string]bool, error) {
	running := map[string]bool{}
	all := upstreamByName()
	for _, name := range s.APIServer {
		switch name {
		case "none", "default":
			if len(s.APIServer) > 1 {
				return nil, fmt.Errorf("--%s: %q stands alone, or plugins are listed", admit.APIServerFlag, name)
			}
			for _, p := range all {
				running[p.name] = name == "default" && p.defaultOn
			}
		default:
			if _, ok := all[name]; !ok {
				err := fmt.Errorf("--%s: kube-apiserver has no plugin %q", admit.APIServerFlag, name)
				if likeliest := suggest.Name(name, slices.Sorted(maps.Keys(all))); likeliest != "" {
					return nil, fmt.Errorf("%w, did you mean %s?", err, likeliest)
				}
				return nil, err
			}
			running[name] = true
		}
	}
	return running, nil
}
