package app_test

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/cmd/postern/app"
	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admit"
)

// acme is a third-party plugin that uses every field of Deps.
func acme() *admit.Plugin {
	return &admit.Plugin{
		Name:         "AcmeLabels",
		Rules:        []admit.Rule{admit.On("configmaps", "CREATE")},
		Features:     map[featuregate.Feature]featuregate.FeatureSpec{"AcmeGate": {Default: true, PreRelease: featuregate.Beta}},
		Flags:        []admit.Flag{{Name: "acme-owner", Default: "nobody", Usage: "Who owns Acme."}},
		Configurable: true,
		New: func(d admit.Deps, data []byte) (admit.Handler, error) {
			d.Features.Enabled("AcmeGate")
			var config struct {
				Key string `json:"key"`
			}
			if err := admit.DecodeConfig(data, &config); err != nil {
				return admit.Handler{}, err
			}
			return admit.Handler{}, admit.InvalidField("key", "got %q with --acme-owner=%s", config.Key, d.Flag(admit.Flag{Name: "acme-owner"}))
		},
	}
}

func TestFamiliesOfSomebodyElse(t *testing.T) {
	own := admit.Family{Name: "acme", Plugins: []*admit.Plugin{acme()}}
	config := file(t, "config.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: AcmeLabels\n  configuration:\n    key: team\n")
	broken := file(t, "broken.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: AcmeLabels\n  configuration:\n    keys: team\n")
	for name, families := range map[string]admissions.List{"beside the built-in ones": append(admissions.Families(), own), "alone": {own}} {
		for _, tc := range []struct {
			args string
			want string
		}{
			{"--help", "AcmeLabels"},
			{"--help", "--acme-owner"},
			{"--help", "AcmeGate=true|false"},
			// The plugin gets its configuration, and its error has file, line and field.
			{"--enable-admission-plugins=AcmeLabels --feature-gates=AcmeGate=false --acme-owner=me --admission-control-config-file=" + config, `config.yaml:6: plugin AcmeLabels: key: got "team" with --acme-owner=me`},
			{"--enable-admission-plugins=AcmeLabels --admission-control-config-file=" + broken, `broken.yaml:6: plugin AcmeLabels: keys: unknown field`},
			{"--enable-admission-plugins=AcmeLabel", `there is no plugin "AcmeLabel", did you mean AcmeLabels?`},
			{"--feature-gates=AcmeGates=false", "AcmeGates"},
		} {
			var out bytes.Buffer
			args := append(strings.Fields(tc.args), "--kubeconfig="+kubeconfig(t, "http://127.0.0.1:1"), "--webhook-url=https://127.0.0.1:1")
			app.Program{Families: families}.Run(t.Context(), args, &out, &out)
			if !strings.Contains(out.String(), tc.want) {
				t.Errorf("%s, %s: got %s, want %q", name, tc.args, out.String(), tc.want)
			}
		}
	}
}

func TestListsThatContradictThemselves(t *testing.T) {
	plugin := func(name string, flags ...admit.Flag) *admit.Plugin {
		return &admit.Plugin{Name: name, Flags: flags, New: func(admit.Deps, []byte) (admit.Handler, error) { return admit.Handler{}, nil }}
	}
	gated := func(name string, on bool) *admit.Plugin {
		p := plugin(name)
		p.Features = map[featuregate.Feature]featuregate.FeatureSpec{"Shared": {Default: on}}
		return p
	}
	family := func(name string, plugins ...*admit.Plugin) admit.Family {
		return admit.Family{Name: name, Plugins: plugins}
	}
	for name, tc := range map[string]struct {
		families admissions.List
		want     string
	}{
		"two plugins of one name":        {append(admissions.Families(), family("acme", plugin("AlwaysPullImages"))), "plugin AlwaysPullImages is in the list of families twice: in family pods and in family acme"},
		"two families of one name":       {append(admissions.Families(), family("pods", plugin("Acme"))), "family pods is in the list of families twice"},
		"two flags of one name":          {admissions.List{family("acme", plugin("A", admit.Flag{Name: "x"}), plugin("B", admit.Flag{Name: "x"}))}, "flag --x is in the list of families twice: in plugin A and in plugin B"},
		"a flag of the process":          {admissions.List{family("acme", plugin("A", admit.Flag{Name: "kubeconfig"}))}, "plugin A: the flag --kubeconfig exists already"},
		"a gate with two defaults":       {admissions.List{family("acme", gated("A", true), gated("B", false))}, "feature gates of plugin B"},
		"a family in upper case":         {admissions.List{family("Acme_Pods", plugin("A"))}, `family "Acme_Pods": a lowercase RFC 1123 label must consist of lower case`},
		"a family with a dot":            {admissions.List{family("acme.pods", plugin("A"))}, `family "acme.pods": must not contain dots`},
		"a family without a name":        {admissions.List{family("", plugin("A"))}, `family "": a lowercase RFC 1123 label`},
		"a plugin that no flag can name": {admissions.List{family("acme", plugin("A,B"))}, `family acme: plugin "A,B": want a name of letters and digits`},
		"a name with a space":            {admissions.List{family("acme", plugin("A B"))}, `family acme: plugin "A B": want a name`},
		"a name with a quote":            {admissions.List{family("acme", plugin("A\"B"))}, `family acme: plugin "A\"B": want a name`},
		"a plugin without a name":        {admissions.List{family("acme", plugin(""))}, `family acme: plugin "": want a name`},
		"a name with a domain":           {admissions.List{family("acme", plugin("acme.example.com/Team-Label"))}, "unknown flag: --anything"},
		"a flag that cannot be set":      {admissions.List{family("acme", plugin("A", admit.Flag{Name: "a=b"}))}, `plugin A: flag "a=b": want a name`},
		"a plugin without New":           {admissions.List{family("acme", &admit.Plugin{Name: "A"})}, `plugin "A" has no New`},
	} {
		var out bytes.Buffer
		code := app.Program{Families: tc.families}.Run(t.Context(), []string{"serve", "--anything"}, &out, &out)
		if code != 2 || !strings.Contains(out.String(), tc.want) || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%s: got code %d and %s, want one line with %q", name, code, out.String(), tc.want)
		}
	}
}

// TestCommandsOfPlugins covers the commands that belong to plugins: a program has those of its own plugins.
func TestCommandsOfPlugins(t *testing.T) {
	for name, tc := range map[string]struct {
		families admissions.List
		want     bool
	}{
		"the built-in families": {admissions.Families(), true},
		"somebody else's":       {admissions.List{{Name: "acme", Plugins: []*admit.Plugin{acme()}}}, false},
	} {
		var help bytes.Buffer
		app.Program{Families: tc.families}.Run(t.Context(), []string{"--help"}, &help, &help)
		for _, command := range []string{"migrate", "fleetquota"} {
			if got := strings.Contains(help.String(), "\n  "+command+" "); got != tc.want {
				t.Errorf("%s: the help has the command %s: %t, want %t:\n%s", name, command, got, tc.want, help.String())
			}
		}
	}
}
