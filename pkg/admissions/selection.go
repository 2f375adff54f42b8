package admissions

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Selection is the flags that say which plugins run. They are kube-apiserver's,
// with its rules, and --api-server-plugins.
type Selection struct {
	Enable, Disable []string
	// Control is nil unless the flag was given.
	Control []string
	// APIServer is "default", "none", or a list.
	APIServer []string
}

const (
	enableFlag    = "enable-admission-plugins"
	disableFlag   = "disable-admission-plugins"
	controlFlag   = "admission-control"
	apiServerFlag = "api-server-plugins"
)

// AddFlags adds the flags to fs.
func (s *Selection) AddFlags(fs *pflag.FlagSet) {
	all := strings.Join(Names(), ", ")
	fs.StringSliceVar(&s.Enable, enableFlag, nil, "Admission plugins to run besides those that are on by default. The order is irrelevant. Comma-delimited list of: "+all+".")
	fs.StringSliceVar(&s.Disable, disableFlag, nil, "Admission plugins not to run although they are on by default. A name that is enabled too is run, with a warning.")
	fs.StringSliceVar(&s.Control, controlFlag, nil, "Exactly these admission plugins and no others. Deprecated: use --enable-admission-plugins and --disable-admission-plugins, which cannot be given together with it.")
	fs.StringSliceVar(&s.APIServer, apiServerFlag, []string{"default"}, `What the API server already runs: "default" for the plugins that are on by default in kube-apiserver, "none", or a list. A plugin that is on by default is left out if the API server runs it; one that is named in another flag always runs.`)
}

// Enabled returns the plugins that are to run, in kube-apiserver's order, and
// warnings. The error names all mistakes.
func (s *Selection) Enabled() (names, warnings []string, err error) {
	if s.Control != nil && (s.Enable != nil || s.Disable != nil) {
		return nil, nil, fmt.Errorf("--%s cannot be given together with --%s or --%s", controlFlag, enableFlag, disableFlag)
	}
	err = errors.Join(known(enableFlag, s.Enable), known(disableFlag, s.Disable), known(controlFlag, s.Control))
	running, apiErr := s.apiServer()
	if err = errors.Join(err, apiErr); err != nil {
		return nil, nil, err
	}
	exists := Names()
	for _, p := range upstream() {
		on := p.defaultOn && !running[p.name]
		switch {
		case !slices.Contains(exists, p.name):
			continue
		case s.Control != nil:
			on = slices.Contains(s.Control, p.name)
		case slices.Contains(s.Enable, p.name):
			if slices.Contains(s.Disable, p.name) {
				warnings = append(warnings, fmt.Sprintf("%s is in both --%s and --%s: it runs", p.name, enableFlag, disableFlag))
			}
			on = true
		case slices.Contains(s.Disable, p.name):
			on = false
		}
		if on {
			names = append(names, p.name)
		}
	}
	return names, warnings, nil
}

func known(flag string, names []string) error {
	exists := Names()
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
			errs = append(errs, fmt.Errorf("--%s: there is no plugin %q; there are: %s", flag, name, strings.Join(exists, ", ")))
		}
	}
	return errors.Join(errs...)
}

// apiServer returns the plugins that the API server already runs.
func (s *Selection) apiServer() (map[string]bool, error) {
	running := map[string]bool{}
	all := upstreamByName()
	for _, name := range s.APIServer {
		switch name {
		case "none", "default":
			if len(s.APIServer) > 1 {
				return nil, fmt.Errorf("--%s: %q stands alone, or plugins are listed", apiServerFlag, name)
			}
			for _, p := range all {
				running[p.name] = name == "default" && p.defaultOn
			}
		default:
			if _, ok := all[name]; !ok {
				return nil, fmt.Errorf("--%s: kube-apiserver has no plugin %q", apiServerFlag, name)
			}
			running[name] = true
		}
	}
	return running, nil
}
