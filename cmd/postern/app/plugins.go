package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// pluginRow is a plugin in the output of the plugins command.
type pluginRow struct {
	Name   string `json:"name"`
	Family string `json:"family"`
	// Phases are the phases in which the plugin is called without a configuration. For a plugin that needs one, they are those of
	// its static rules. If there are none, PhasesBy says what decides about them.
	Phases   []string `json:"phases"`
	PhasesBy decider  `json:"phasesBy,omitempty"`
	// OnByDefault is true if kube-apiserver enables the plugin by default.
	OnByDefault bool `json:"onByDefault"`
	// Configurable is true if the plugin may have an entry in the AdmissionConfiguration. NeedsConfiguration is true if it
	// does not start without one.
	Configurable       bool `json:"configurable"`
	NeedsConfiguration bool `json:"needsConfiguration"`
	// Watches are the resources that the plugin caches. If WatchesBy says what decides about them, they are those that
	// Plugin.Access permits to watch.
	Watches   []string `json:"watches"`
	WatchesBy decider  `json:"watchesBy,omitempty"`
	// InAPIServer is true if the metrics of the API server name the plugin. It is nil if they were not read.
	InAPIServer *bool `json:"inAPIServer,omitempty"`
}

// decider is what decides about something that a plugin does.
type decider string

const (
	byConfiguration decider = "configuration"
	byFlag          decider = "flag"
	byFeatureGate   decider = "feature gate"
)

// pluginsCommand holds the flags of the plugins command.
type pluginsCommand struct {
	offline
	format     output
	kubeconfig string
}

func (p Program) newPlugins() (*cobra.Command, error) {
	c := &pluginsCommand{}
	cmd := &cobra.Command{
		Use:   "plugins",
		Short: "List the plugins, and which of them the API server seems to run",
		Long: "List the plugins: the family, the phases, whether kube-apiserver enables the plugin by default, and the resources of " +
			"which the plugin keeps a cache. A plugin that does not start without a configuration or a flag has \"by configuration\" or " +
			"\"by flag\" there, and one that is switched off by its feature gate has \"by feature gate\".\n\n" +
			"With a cluster, the last column is yes for a plugin that this API server runs already, judged from the metric " +
			"apiserver_admission_controller_admission_duration_seconds in its /metrics. The metric names a plugin after its first " +
			"request. On a cluster with several API servers, only one of them is asked.\n\n" +
			"--output=helm prints the values with which the Helm chart of Postern installs this program.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&c.kubeconfig, "kubeconfig", "", "Kubeconfig of the cluster. Not needed in a pod. Without a cluster, nothing is said about the API server.")
	c.format.addFlag(cmd, outputName, outputHelm)
	var err error
	c.offline, err = p.newOffline(cmd.Flags())
	return cmd, err
}

func (c *pluginsCommand) run(ctx context.Context, out, notes io.Writer) error {
	if c.format.value == outputName {
		_, err := fmt.Fprintln(out, strings.Join(c.Families.Names(), "\n"))
		return err
	}
	rows, err := c.rows(ctx)
	if err != nil {
		return err
	}
	if c.format.value == outputHelm {
		return c.writeChartValues(out, rows)
	}
	seen, err := apiServerPlugins(ctx, c.kubeconfig)
	switch {
	case errors.Is(err, errNotShown):
		fmt.Fprintln(notes, oneLine(err))
	case err != nil:
		return err
	default:
		for i := range rows {
			known := seen[rows[i].Name]
			rows[i].InAPIServer = &known
		}
	}
	if c.format.value == outputJSON {
		return printJSON(out, rows)
	}
	return printRows(out, rows)
}

// rows makes each plugin without a configuration, to determine its phases and its caches.
func (o offline) rows(ctx context.Context) ([]pluginRow, error) {
	var rows []pluginRow
	for _, f := range o.Families {
		for _, p := range f.Plugins {
			process, err := o.process()
			if err != nil {
				return nil, err
			}
			deps := process.deps()
			h, err := p.New(deps, nil)
			row := pluginRow{
				Name: p.Name, Family: f.Name, Phases: phasesOf(h), OnByDefault: admissions.OnByDefault(p.Name),
				Configurable: p.Configurable, NeedsConfiguration: err != nil && p.Configurable,
			}
			if err != nil {
				row.addStatic(p)
			} else if row.Watches, err = process.watched(ctx); err != nil {
				return nil, fmt.Errorf("plugin %s: %w", p.Name, err)
			} else if len(row.Phases) == 0 && gated(deps.Features, p) {
				row.PhasesBy = byFeatureGate
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// gated reports whether a gate of the plugin is off.
func gated(gates featuregate.FeatureGate, p *admit.Plugin) bool {
	for gate := range p.Features {
		if !gates.Enabled(gate) {
			return true
		}
	}
	return false
}

// addStatic completes the row of a plugin that does not start without a configuration, or without a flag, from its static rules
// and permissions.
func (r *pluginRow) addStatic(p *admit.Plugin) {
	by := byConfiguration
	if !p.Configurable {
		by = byFlag
	}
	if r.Phases = phasesOfRules(p.Rules); len(r.Phases) == 0 {
		r.PhasesBy = by
	}
	r.Watches = []string{}
	for _, need := range access.Of(p.Access) {
		if need.Verb == "watch" {
			r.Watches = append(r.Watches, schema.GroupResource{Group: need.Group, Resource: need.Resource}.String())
			r.WatchesBy = by
		}
	}
}

const mutating, validating = "mutating", "validating"

func phasesOf(h admit.Handler) []string {
	phases := []string{}
	if h.Mutate != nil {
		phases = append(phases, mutating)
	}
	if h.Validate != nil {
		phases = append(phases, validating)
	}
	return phases
}

func phasesOfRules(rules []admit.Rule) []string {
	phases := []string{}
	for _, r := range rules {
		switch r.Phase {
		case admit.Mutating:
			phases = append(phases, mutating)
		case admit.Validating:
			phases = append(phases, validating)
		case admit.Both:
			phases = append(phases, mutating, validating)
		}
	}
	slices.Sort(phases)
	return slices.Compact(phases)
}

// watched returns the resources of the informers that plugins requested. Only a started informer is listed, so the
// informers are started with a context that has ended.
func (p *process) watched(ctx context.Context) ([]string, error) {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	watched := []string{}
	p.informers.StartWithContext(ended)
	for kind := range p.informers.WaitForCacheSync(ended.Done()) {
		obj, ok := reflect.TypeAssert[runtime.Object](reflect.New(kind.Elem()))
		if !ok {
			return nil, fmt.Errorf("%v is no type of an API", kind)
		}
		kinds, _, err := scheme.Scheme.ObjectKinds(obj)
		if err != nil {
			return nil, err
		}
		resource, _ := meta.UnsafeGuessKindToResource(kinds[0])
		watched = append(watched, resource.GroupResource().String())
	}
	for _, custom := range []*customInformers{p.custom, p.optional} {
		custom.Start(ended.Done())
		for resource := range custom.WaitForCacheSync(ended.Done()) {
			watched = append(watched, resource.GroupResource().String())
		}
	}
	slices.Sort(watched)
	return watched, nil
}

func printRows(out io.Writer, rows []pluginRow) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	header := "NAME\tFAMILY\tPHASES\tDEFAULT\tWATCHES"
	if len(rows) > 0 && rows[0].InAPIServer != nil {
		header += "\tAPI SERVER"
	}
	fmt.Fprintln(w, header)
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s", r.Name, r.Family, r.PhasesBy.or(r.Phases), yes(r.OnByDefault), r.WatchesBy.or(r.Watches))
		if r.InAPIServer != nil {
			fmt.Fprintf(w, "\t%s", yes(*r.InAPIServer))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// or returns a list for a reader, unless something decides about it.
func (d decider) or(list []string) string {
	if d != "" {
		return "by " + string(d)
	}
	return listOrDash(list)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}

func listOrDash(list []string) string { return cmp.Or(strings.Join(list, ", "), "-") }
