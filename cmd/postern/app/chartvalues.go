package app

import (
	"io"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/pkg/registration"
)

// chartProgram is what the Helm chart knows of a program: its value "program". The chart has a file with that of Postern.
type chartProgram struct {
	// Configurations are the names of the webhook configurations, for the roles of the process and of the uninstallation.
	Configurations []string `json:"configurations"`
	// Services is true if the program has services without plugins, so that it serves also if no plugin is enabled. It is
	// written also if it is false, because Helm merges the values with those of an earlier program.
	Services bool `json:"services"`
	// FeatureGates are the names of all gates. The chart refuses others.
	FeatureGates []string      `json:"featureGates"`
	Plugins      []chartPlugin `json:"plugins"`
}

// chartPlugin is a plugin in the Helm chart.
type chartPlugin struct {
	Name               string              `json:"name"`
	Default            bool                `json:"default,omitempty"`
	Configurable       bool                `json:"configurable,omitempty"`
	NeedsConfiguration bool                `json:"needsConfiguration,omitempty"`
	Rules              []rbacv1.PolicyRule `json:"rules,omitempty"`
}

// writeChartValues writes the program as values of the Helm chart.
func (o offline) writeChartValues(out io.Writer, rows []pluginRow) error {
	names, err := o.configNames(registration.Deployment{})
	if err != nil {
		return err
	}
	// The schema of the chart wants a list, which may be empty.
	program := chartProgram{Configurations: names, Services: len(o.Services) > 0, Plugins: []chartPlugin{}}
	for gate := range o.features.GetAll() {
		program.FeatureGates = append(program.FeatureGates, string(gate))
	}
	slices.Sort(program.FeatureGates)
	for _, row := range rows {
		grants, err := o.pluginGrants([]string{row.Name})
		if err != nil {
			return err
		}
		p := chartPlugin{Name: row.Name, Default: row.OnByDefault, Configurable: row.Configurable, NeedsConfiguration: row.NeedsConfiguration}
		for _, g := range grants {
			p.Rules = append(p.Rules, g.PolicyRule)
		}
		program.Plugins = append(program.Plugins, p)
	}
	data, err := yaml.Marshal(map[string]chartProgram{"program": program})
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}
