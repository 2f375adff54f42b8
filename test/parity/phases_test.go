package parity_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/admission"

	"github.com/postern-dev/postern/pkg/router"
)

// deniedLater lists the requests of cases that Postern denies in the validating phase and kube-apiserver
// denies in the mutating phase. docs/compatibility.md gives the reasons.
func deniedLater() []string {
	return []string{
		"AlwaysDeny CONNECT pods/exec",
		"AlwaysDeny CREATE configmaps",
		"AlwaysDeny CREATE namespaces",
		"AlwaysDeny CREATE tills",
		"AlwaysDeny DELETE clusterroles",
		"AlwaysDeny UPDATE deployments/scale",
		"AlwaysDeny UPDATE namespaces",
		"NodeRestriction CREATE certificatesigningrequests",
		"NodeRestriction CREATE csinodes",
		"NodeRestriction CREATE csinodes/status",
		"NodeRestriction CREATE leases",
		"NodeRestriction CREATE persistentvolumeclaims",
		"NodeRestriction CREATE persistentvolumeclaims/status",
		"NodeRestriction CREATE podcertificaterequests",
		"NodeRestriction CREATE podcertificaterequests/status",
		"NodeRestriction CREATE pods",
		"NodeRestriction CREATE pods/binding",
		"NodeRestriction CREATE pods/eviction",
		"NodeRestriction CREATE pods/status",
		"NodeRestriction CREATE resourceslices",
		"NodeRestriction DELETE csinodes",
		"NodeRestriction DELETE csinodes/status",
		"NodeRestriction DELETE leases",
		"NodeRestriction DELETE nodes",
		"NodeRestriction DELETE persistentvolumeclaims",
		"NodeRestriction DELETE persistentvolumeclaims/status",
		"NodeRestriction DELETE podcertificaterequests",
		"NodeRestriction DELETE pods",
		"NodeRestriction DELETE pods/status",
		"NodeRestriction DELETE resourceslices",
		"NodeRestriction UPDATE leases",
		"NodeRestriction UPDATE persistentvolumeclaims",
		"NodeRestriction UPDATE podcertificaterequests",
		"NodeRestriction UPDATE podcertificaterequests/status",
		"NodeRestriction UPDATE pods",
		"NodeRestriction UPDATE pods/ephemeralcontainers",
		"NodeRestriction UPDATE pods/eviction",
		"NodeRestriction UPDATE pods/resize",
	}
}

// TestPhases fails if a plugin denies in another phase than kube-apiserver's plugin. Changes by the API
// server between the two phases could change the verdict, and no case shows this, because a case has only one
// object.
func TestPhases(t *testing.T) {
	later := map[string]bool{}
	for _, e := range entries(t) {
		if !isUpstream(e.Plugin.Name) || e.Parity.Skip != "" || e.Phase != "" || len(e.Steps) == 0 {
			continue
		}
		t.Run(e.name(), func(t *testing.T) {
			c := *e.Case
			c.Phase = router.PhaseMutate
			comparePhase(t, entry{e.Plugin, &c}, later)
		})
	}
	if got, want := slices.Sorted(maps.Keys(later)), deniedLater(); !slices.Equal(got, want) {
		t.Errorf("These requests are denied later than by kube-apiserver: %q, want %q", got, want)
	}
}

// comparePhase adds to later the requests of a case that only kube-apiserver denies in the mutating phase.
func comparePhase(t *testing.T, e entry, later map[string]bool) {
	t.Helper()
	inTree, err := newInTree(t, e.Plugin.Name, e.Case)
	if err != nil {
		t.Fatalf("Making the plugin of kube-apiserver: %v", err)
	}
	s := serve(t, e)
	defer s.Close()
	for i, step := range e.Steps {
		ar := requestOf(t, &step.Request)
		theirs := inTree.play(t, e.Case, ar)
		ours, err := s.Play(t.Context(), e.Case, &step.Request)
		switch {
		case err != nil:
			t.Fatalf("Step %d: %v", i+1, err)
		case theirs.Allowed && ours.Failure == nil && !ours.Allowed:
			t.Errorf("Step %d: denied in the mutating phase, where kube-apiserver allows it: %s", i+1, ours.Status.Message)
		case !theirs.Allowed && ours.Allowed:
			later[strings.TrimSuffix(strings.Join([]string{e.Plugin.Name, string(ar.Operation), ar.Resource.Resource + "/" + ar.SubResource}, " "), "/")] = true
		}
	}
}

// row is a row of the table in docs/compatibility.md: a plugin, its phases in
// kube-apiserver, and its phases here.
var row = regexp.MustCompile(`(?m)^\| \[(\w+)\]\([^)]*\) \| ([^|]*) \| ([^|]*) \|`)

// TestPhasesAreDocumented compares the table in docs/compatibility.md with the
// plugins.
func TestPhasesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	for _, found := range row.FindAllStringSubmatch(string(doc), -1) {
		documented[found[1]] = found[2:]
	}
	inTree, ours := map[string]string{}, map[string]map[string]bool{}
	for _, e := range entries(t) {
		name := e.Plugin.Name
		if ours[name] == nil {
			ours[name] = map[string]bool{}
		}
		if len(e.Steps) == 0 {
			continue
		}
		if isUpstream(name) && inTree[name] == "" && e.Parity.Skip == "" {
			inTree[name] = interfacesOf(t, e)
		}
		maps.Copy(ours[name], registeredPhases(t, e))
	}
	for name, has := range ours {
		switch got := documented[name]; {
		case len(got) == 0:
			t.Errorf("The table has no %s", name)
		case inTree[name] != "" && got[0] != inTree[name]:
			t.Errorf("%s: the table says %q of kube-apiserver, want %q", name, got[0], inTree[name])
		case got[1] != phasesOf(has):
			t.Errorf("%s: the table says %q of Postern, want %q", name, got[1], phasesOf(has))
		}
	}
}

// registeredPhases returns the phases for which the plugin registers webhooks in a case.
func registeredPhases(t *testing.T, e entry) map[string]bool {
	t.Helper()
	s := serve(t, e)
	defer s.Close()
	has := map[string]bool{}
	if c := s.Service.MutatingConfig; c != nil && len(c.Webhooks) > 0 {
		has[router.PhaseMutate] = true
	}
	if c := s.Service.ValidatingConfig; c != nil && len(c.Webhooks) > 0 {
		has[router.PhaseValidate] = true
	}
	return has
}

// interfacesOf returns the methods of kube-apiserver's plugin.
func interfacesOf(t *testing.T, e entry) string {
	t.Helper()
	p, err := newInTree(t, e.Plugin.Name, e.Case)
	if err != nil {
		return ""
	}
	var out []string
	if _, ok := p.plugin.(admission.MutationInterface); ok {
		out = append(out, "Admit")
	}
	if _, ok := p.plugin.(admission.ValidationInterface); ok {
		out = append(out, "Validate")
	}
	return strings.Join(out, ", ")
}

func phasesOf(has map[string]bool) string {
	switch {
	case has[router.PhaseMutate] && has[router.PhaseValidate]:
		return "mutating, validating"
	case has[router.PhaseMutate]:
		return "mutating"
	case has[router.PhaseValidate]:
		return "validating"
	}
	return "none"
}
