package admissions_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/pkg/admissions"
)

// enabled parses a command line.
func enabled(t *testing.T, args ...string) (names, warnings []string, err error) {
	t.Helper()
	var s admissions.Selection
	fs := pflag.NewFlagSet("postern", pflag.ContinueOnError)
	s.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatalf("Parsing %q: %v", args, err)
	}
	return s.Enabled(admissions.Families())
}

// TestSelection covers the flags that enable plugins. In kube-apiserver AlwaysPullImages is off by default;
// LimitRanger and Priority are on.
func TestSelection(t *testing.T) {
	for name, tc := range map[string]struct {
		args     []string
		with     []string
		without  []string
		warnings []string
	}{
		"nothing said": {
			without: []string{"AlwaysPullImages", "LimitRanger", "Priority"},
		},
		"a plugin that is off by default": {
			args: []string{"--enable-admission-plugins=AlwaysPullImages"},
			with: []string{"AlwaysPullImages"}, without: []string{"LimitRanger"},
		},
		"a plugin that the API server runs too": {
			args: []string{"--enable-admission-plugins=Priority"},
			with: []string{"Priority"}, without: []string{"LimitRanger"},
		},
		"an API server that runs none": {
			args: []string{"--api-server-plugins=none"},
			with: []string{"LimitRanger", "Priority"}, without: []string{"AlwaysPullImages"},
		},
		"an API server that runs some": {
			args: []string{"--api-server-plugins=Priority,ValidatingAdmissionWebhook"},
			with: []string{"LimitRanger"}, without: []string{"Priority", "AlwaysPullImages"},
		},
		"an API server of which nothing is said": {
			args: []string{"--api-server-plugins="},
			with: []string{"LimitRanger", "Priority"},
		},
		"a plugin that is not to run": {
			args: []string{"--api-server-plugins=none", "--disable-admission-plugins=LimitRanger"},
			with: []string{"Priority"}, without: []string{"LimitRanger"},
		},
		"a plugin that is off anyway": {
			args:    []string{"--disable-admission-plugins=AlwaysPullImages"},
			without: []string{"AlwaysPullImages"},
		},
		"a plugin in both lists": {
			args:     []string{"--enable-admission-plugins=LimitRanger", "--disable-admission-plugins=LimitRanger"},
			with:     []string{"LimitRanger"},
			warnings: []string{"LimitRanger is in both --enable-admission-plugins and --disable-admission-plugins: it runs"},
		},
		"flags that are given twice, and a name too": {
			args: []string{"--enable-admission-plugins=Priority", "--enable-admission-plugins=AlwaysPullImages,Priority"},
			with: []string{"AlwaysPullImages", "Priority"},
		},
		"exactly these": {
			args: []string{"--api-server-plugins=none", "--admission-control=AlwaysPullImages"},
			with: []string{"AlwaysPullImages"}, without: []string{"LimitRanger", "Priority"},
		},
		"exactly none": {
			args:    []string{"--api-server-plugins=none", "--admission-control="},
			without: []string{"AlwaysPullImages", "LimitRanger", "Priority"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			names, warnings, err := enabled(t, tc.args...)
			if err != nil {
				t.Fatalf("Got error %v, want none", err)
			}
			for _, name := range tc.with {
				if !slices.Contains(names, name) {
					t.Errorf("Got %q, want %s among them", names, name)
				}
			}
			for _, name := range tc.without {
				if slices.Contains(names, name) {
					t.Errorf("Got %q, want %s not among them", names, name)
				}
			}
			if diff := cmp.Diff(warnings, tc.warnings); diff != "" {
				t.Errorf("Warnings differ (- got, + want):\n%s", diff)
			}
		})
	}
}

// TestSelectionIsInOrder checks that the order of names in a flag does not matter.
func TestSelectionIsInOrder(t *testing.T) {
	want := []string{"LimitRanger", "AlwaysPullImages", "Priority"}
	for _, list := range []string{"Priority,AlwaysPullImages,LimitRanger", "AlwaysPullImages,LimitRanger,Priority"} {
		for _, flag := range []string{"--enable-admission-plugins=", "--admission-control="} {
			names, _, err := enabled(t, flag+list)
			if diff := cmp.Diff(names, want); err != nil || diff != "" {
				t.Errorf("Got error %v for %s%s; names differ (- got, + want):\n%s", err, flag, list, diff)
			}
		}
	}
}

// TestSelectionMistakes covers flags that stop the start. Each message names the flag.
func TestSelectionMistakes(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"a misspelt name": {
			[]string{"--enable-admission-plugins=AlwaysPullImage"}, []string{`--enable-admission-plugins: there is no plugin "AlwaysPullImage", did you mean AlwaysPullImages?`},
		},
		"an unknown name": {
			[]string{"--enable-admission-plugins=Gatekeeper"}, []string{`--enable-admission-plugins: there is no plugin "Gatekeeper"; there are: `, "AlwaysPullImages"},
		},
		"an unknown name not to run": {
			[]string{"--disable-admission-plugins=alwayspullimages"}, []string{`--disable-admission-plugins: there is no plugin "alwayspullimages"`},
		},
		"a blank": {
			[]string{"--admission-control=AlwaysPullImages, Priority"}, []string{`--admission-control: there is no plugin " Priority"`},
		},
		"all mistakes at once": {
			[]string{"--enable-admission-plugins=A", "--disable-admission-plugins=B", "--api-server-plugins=C"}, []string{`no plugin "A"`, `no plugin "B"`, `no plugin "C"`},
		},
		"what Postern is called through": {
			[]string{"--enable-admission-plugins=MutatingAdmissionWebhook"}, []string{"--enable-admission-plugins: MutatingAdmissionWebhook is what Postern itself is called through, it runs in the API server"},
		},
		"what there is no more": {
			[]string{"--enable-admission-plugins=Initializers"}, []string{"--enable-admission-plugins: Initializers is not in Postern: the API that it served left Kubernetes in 1.14"},
		},
		"both forms": {
			[]string{"--admission-control=AlwaysPullImages", "--enable-admission-plugins=AlwaysPullImages"}, []string{"--admission-control cannot be given together with --enable-admission-plugins or --disable-admission-plugins"},
		},
		"both forms, one of them empty": {
			[]string{"--admission-control=", "--disable-admission-plugins=AlwaysPullImages"}, []string{"--admission-control cannot be given together"},
		},
		"a list with default in it": {
			[]string{"--api-server-plugins=default,AlwaysPullImages"}, []string{`--api-server-plugins: "default" stands alone, or plugins are listed`},
		},
		"a plugin that kube-apiserver does not have": {
			[]string{"--api-server-plugins=AlwaysPushImages"}, []string{`--api-server-plugins: kube-apiserver has no plugin "AlwaysPushImages"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			names, _, err := enabled(t, tc.args...)
			if err == nil {
				t.Fatalf("Got %q, want an error", names)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Got error %q, want %q in it", err, want)
				}
			}
		})
	}
}
