// Package admissions holds the list of families, and reads which of their plugins
// run, with which configuration, from kube-apiserver's flags and file.
package admissions

import (
	"errors"
	"fmt"

	"github.com/postern-dev/postern/pkg/admissions/admit"
	"github.com/postern-dev/postern/pkg/admissions/always"
	"github.com/postern-dev/postern/pkg/admissions/certificates"
	"github.com/postern-dev/postern/pkg/admissions/events"
	"github.com/postern-dev/postern/pkg/admissions/namespaces"
	"github.com/postern-dev/postern/pkg/admissions/network"
	"github.com/postern-dev/postern/pkg/admissions/nodes"
	"github.com/postern-dev/postern/pkg/admissions/ownership"
	"github.com/postern-dev/postern/pkg/admissions/pods"
	"github.com/postern-dev/postern/pkg/admissions/storage"
	"github.com/postern-dev/postern/pkg/router"
)

// Families lists the families. The order is that of the table in the README; the
// API server calls webhooks in the order of their names.
func Families() []admit.Family {
	return []admit.Family{
		always.Family,
		namespaces.Family,
		pods.Family,
		nodes.Family,
		storage.Family,
		certificates.Family,
		network.Family,
		ownership.Family,
		events.Family,
	}
}

// Services makes the services of the enabled plugins. A mistake in a plugin's
// configuration is told with the file, the line and the field.
func Services(d admit.Deps, enabled []string, configs Configs) ([]router.AdmissionService, error) {
	data := map[string][]byte{}
	for _, name := range enabled {
		data[name] = configs[name].Data
	}
	var services []router.AdmissionService
	for _, f := range Families() {
		s, err := f.Service(d, data)
		if wrong, ok := errors.AsType[*admit.PluginError](err); ok {
			return nil, configs[wrong.Plugin].locate(wrong)
		}
		if err != nil {
			return nil, fmt.Errorf("family %s: %w", f.Name, err)
		}
		if s.Mutate != nil || s.Validate != nil {
			services = append(services, s)
		}
	}
	return services, nil
}

// Names returns the names of all plugins that there are.
func Names() []string {
	var names []string
	for _, f := range Families() {
		for _, p := range f.Plugins {
			names = append(names, p.Name)
		}
	}
	return names
}
