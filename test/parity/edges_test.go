package parity_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/postern-dev/postern/internal/edges"
	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/internal/seed"
	ownership "github.com/postern-dev/postern/pkg/admissions/ownership/ownerreferencespermissionenforcement"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	"github.com/postern-dev/postern/pkg/router"
)

// edgesPerExample is the number of objects that are made of one case.
const edgesPerExample = 10

// edgeExample is a case with its object: see admittest.Case.Example.
type edgeExample struct {
	entry
	object runtime.Object
}

// edgeExamples returns a case of each plugin for each operation on each resource that has no custom resource: the first one
// that is allowed, and the first one that is denied.
func edgeExamples(t *testing.T) (out []edgeExample) {
	t.Helper()
	seen := map[string]bool{}
	for _, e := range entries(t) {
		object, err := e.Example()
		if err != nil {
			t.Fatal(err)
		}
		if object == nil {
			continue
		}
		ar := requestOf(t, &e.Steps[0].Request)
		name := fmt.Sprintln(e.Plugin.Name, ar.Operation, ar.Resource, ar.SubResource, *e.Steps[0].Want.Allowed)
		if !seen[name] {
			seen[name] = true
			out = append(out, edgeExample{e, object})
		}
	}
	return out
}

// notComparable returns the reasons why objects are not compared for some plugins.
func notComparable() map[string]string {
	return map[string]string{
		"AlwaysDeny":                   "Postern's plugin denies in the listed namespaces only",
		"NodeDeclaredFeatureValidator": "for an update that the API server denies, kube-apiserver's plugin may compare init containers with others",
		"ResourceQuota":                "kube-apiserver's plugin charges the quotas for what it admits, so that later decisions differ",
	}
}

// TestObjectsAtTheEdge changes one field of the object of a request to a random one of the values at the edge of its type.
// Postern must decide about each, and must decide as kube-apiserver's plugin if that can read the object.
func TestObjectsAtTheEdge(t *testing.T) {
	ring.Second(t, "minutes of requests")
	chance := seed.Chance(t)
	compared := 0
	for _, e := range edgeExamples(t) {
		t.Run(e.name(), func(t *testing.T) {
			s := serve(t, e.entry)
			defer s.Close()
			var theirs *inTree
			if isUpstream(e.Plugin.Name) && e.Parity.Skip == "" && notComparable()[e.Plugin.Name] == "" {
				var err error
				if theirs, err = newInTree(t, e.Plugin.Name, e.Case); err != nil {
					t.Fatalf("Making the plugin of kube-apiserver: %v", err)
				}
			}
			for _, change := range edges.Some(e.object, chance, edgesPerExample) {
				if change.Path == "metadata.namespace" {
					continue // the API server requires that of the request
				}
				problems, was := e.check(t, s, theirs, change)
				for _, problem := range problems {
					t.Errorf("%s: %.1500s", change, problem)
				}
				if was {
					compared++
				}
			}
		})
	}
	t.Logf("Compared %d objects with kube-apiserver", compared)
	if compared < 1000 {
		t.Errorf("Compared %d objects with kube-apiserver, want most", compared)
	}
}

// check sends the changed object to both plugins, and returns the problems, and whether there was a comparison. theirs may be
// nil.
func (e *edgeExample) check(t *testing.T, s *admittest.Server, theirs *inTree, change edges.Change) (problems []string, compared bool) {
	t.Helper()
	raw, err := json.Marshal(change.Make(e.object))
	if err != nil {
		return nil, false // no API server can send it
	}
	request := e.Steps[0].Request
	*request.Main() = raw
	ar, err := request.Admission()
	if err != nil {
		return nil, false // it has no namespace any more
	}
	if _, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil); err != nil {
		for _, phase := range []string{router.PhaseMutate, router.PhaseValidate} {
			if _, err := s.Post(t.Context(), phase, ar); s.Has(phase) && err != nil {
				problems = append(problems, err.Error())
			}
		}
		return problems, false
	}
	ours, err := s.Play(t.Context(), e.Case, &request)
	switch {
	case err != nil:
		return []string{err.Error()}, false
	case ours.Failure != nil:
		return []string{ours.Failure.Error()}, false
	case theirs == nil:
		return nil, false
	}
	return e.differences(t, ours, theirs.play(t, e.Case, ar), ar), true
}

func (e *edgeExample) differences(t *testing.T, ours, theirs *admittest.Outcome, ar *admissionv1.AdmissionRequest) []string {
	t.Helper()
	want := admittest.Want{
		Allowed: &theirs.Allowed, Code: theirs.Status.Code, Reason: string(theirs.Status.Reason), Message: theirs.Status.Message,
		Warnings: theirs.Warnings, Audit: withoutPrefixes(theirs.Audit),
	}
	if strings.ContainsFunc(strings.Join(want.Warnings, ""), unicode.IsControl) {
		want.Warnings = ours.Warnings // an API server drops such a warning of its own
	}
	if e.Parity.Message != "" && !ours.Allowed {
		want.Message = ours.Status.Message // as in the case itself
	}
	if rest, ok := strings.CutPrefix(ours.Status.Message, want.Message); ok && e.Plugin == ownership.Plugin && missingRight.MatchString(rest) {
		want.Added = rest
	}
	if want.Code == http.StatusInternalServerError {
		// Their error was no Status. That of a webhook is Forbidden.
		want.Code, want.Reason = ours.Status.Code, string(ours.Status.Reason)
	}
	if theirs.Allowed && theirs.Changed {
		want.Object = theirs.Object
	}
	if ours.Allowed && ours.Changed {
		ours.Object = external(t, internal(t, ours.Object), schema.GroupVersionKind(ar.Kind))
	}
	return want.Differences(ours)
}
